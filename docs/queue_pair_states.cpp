// SPDX-License-Identifier: Apache-2.0
/// \file
/// Prints parts of docs/queue_pair_states.md from the transition table: the diagram, for Graphviz,
/// or the tables, for Markdown. `scripts/docs` puts both into place.

#include <verbspp/qp/attributes.hpp>
#include <verbspp/qp/state.hpp>
#include <verbspp/qp/transition.hpp>

#include <array>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace verbspp;
using column = transition_attributes transition_row::*;

struct named_column {
  const char* name;
  column type;
};
using columns = std::array<named_column, 3>;

constexpr columns typed{
    {{"RC", &transition_row::rc}, {"UC", &transition_row::uc}, {"UD", &transition_row::ud}}};
constexpr columns others{{{"raw packet", &transition_row::raw_packet},
                          {"XRC send", &transition_row::xrc_send},
                          {"XRC receive", &transition_row::xrc_receive}}};

constexpr std::array attributes{queue_pair_attribute::pkey_index,
                                queue_pair_attribute::port,
                                queue_pair_attribute::access,
                                queue_pair_attribute::qkey,
                                queue_pair_attribute::path,
                                queue_pair_attribute::path_mtu,
                                queue_pair_attribute::destination,
                                queue_pair_attribute::receive_psn,
                                queue_pair_attribute::max_reads_as_target,
                                queue_pair_attribute::min_rnr_timer,
                                queue_pair_attribute::send_psn,
                                queue_pair_attribute::ack_timeout,
                                queue_pair_attribute::ack_retry_count,
                                queue_pair_attribute::rnr_retry_count,
                                queue_pair_attribute::max_reads_as_initiator,
                                queue_pair_attribute::current_state,
                                queue_pair_attribute::alternate_path,
                                queue_pair_attribute::path_migration,
                                queue_pair_attribute::notify_when_drained,
                                queue_pair_attribute::rate_limit};

constexpr int all_attributes = [] {
  int all = 0;
  for (const queue_pair_attribute each : attributes) all |= static_cast<int>(each);
  return all;
}();
// `attributes` contains every attribute of the transition table.
static_assert([] {
  for (const transition_row& row : transition_table)
    for (const columns& set : {typed, others})
      for (const named_column& each : set)
        if (((row.*each.type).required | (row.*each.type).optional) & ~all_attributes) return false;
  return true;
}());

std::string arrow(const transition_row& row) {
  return std::string(to_string(row.from)) + " -> " + to_string(row.to);
}

/// The library's calls for a transition.
std::string_view calls(const transition_row& row) {
  using enum queue_pair_state;
  if (row.from == reset) return "build(), prepare()";
  if (row.from == init && row.to != init) return "handshake()\\nactivate()";
  if (row.from == ready_to_receive) return "handshake()\\nactivate()";
  return "modify()";
}

void print_diagram(std::ostream& out) {
  out << "digraph queue_pair_states {\n"
         "  graph [rankdir=TB, nodesep=0.5, ranksep=0.6, fontname=\"sans-serif\"]\n"
         "  node [shape=box, style=rounded, fontname=\"sans-serif\"]\n"
         "  edge [fontname=\"sans-serif\", fontsize=13]\n"
         "  any [label=\"any state\", style=dashed]\n";
  for (const transition_row& row : transition_table)
    out << "  " << arrow(row) << " [label=\"" << calls(row) << "\"]\n";
  // The table contains neither the transitions that are possible from any state, nor those that the
  // device makes.
  out << "  any -> RESET [label=\"to_reset()\"]\n"
         "  any -> ERR [label=\"to_error()\\n(not from RESET)\"]\n"
         "  any -> ERR [label=\"a request fails\", style=dashed]\n"
         "  RTS -> SQE [label=\"a send fails\\n(UC, UD)\", style=dashed]\n"
         "}\n";
}

char letter(const transition_attributes& of, queue_pair_attribute which) {
  const int bit = static_cast<int>(which);
  return (of.required & bit) != 0 ? 'R' : (of.optional & bit) != 0 ? 'o' : ' ';
}

/// One line of a table: the attributes of a transition that have the same letters. Each transport
/// type has one letter.
struct table_line {
  std::string letters;
  std::string names;
};

std::vector<table_line> lines_of(const transition_row& row, const columns& types) {
  std::vector<table_line> lines;
  for (const queue_pair_attribute which : attributes) {
    std::string letters;
    for (const named_column& each : types) letters += letter(row.*each.type, which);
    if (letters.find_first_not_of(' ') == std::string::npos) continue;
    auto line = lines.begin();
    while (line != lines.end() && line->letters != letters) ++line;
    if (line == lines.end()) line = lines.insert(line, {letters, {}});
    line->names += (line->names.empty() ? "" : ", ") + std::string(to_string(which));
  }
  if (lines.empty()) lines.push_back({std::string(types.size(), ' '), "none"});
  return lines;
}

void print_table(std::ostream& out, const columns& types) {
  out << "| transition | attribute |";
  for (const named_column& each : types) out << ' ' << each.name << " |";
  out << "\n| --- | --- |";
  for (std::size_t i = 0; i < types.size(); ++i) out << " --- |";
  out << '\n';
  for (const transition_row& row : transition_table) {
    std::string name = arrow(row);
    for (const table_line& line : lines_of(row, types)) {
      out << "| " << name << " | " << line.names << " |";
      for (const char each : line.letters) (each == ' ' ? out << " |" : out << ' ' << each << " |");
      out << '\n';
      name.clear();
    }
  }
  out << "| any -> RESET, any but RESET -> ERR | none | | | |\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what == "diagram") {
    print_diagram(std::cout);
  } else if (what == "attributes") {
    print_table(std::cout, typed);
  } else if (what == "attributes-of-other-types") {
    print_table(std::cout, others);
  } else {
    std::cerr << "queue_pair_states diagram|attributes|attributes-of-other-types\n";
    return 2;
  }
  return std::cout.flush() ? 0 : 1;
}
