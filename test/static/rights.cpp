// SPDX-License-Identifier: Apache-2.0

// The rights in the type of memory determine how the memory may be used.

#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/remote_object.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/memory/window_part.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using namespace verbspp;
using access::all_remote;
using access::local_read;
using access::local_write;
using access::remote_atomic;
using access::remote_read;
using access::remote_write;
using access::window_bind;

// Local memory

template <access_flags Rights>
concept CanGather = requires(const memory_region<Rights>& region) {
  { region.gather() } -> std::same_as<result<gather_element>>;
  { region.gather(0, 1) } -> std::same_as<result<gather_element>>;
  { region.gather_unchecked(0, 1) } -> std::same_as<gather_element>;
};
template <access_flags Rights>
concept CanScatterAll = requires(const memory_region<Rights>& region) {
  { region.scatter() } -> std::same_as<result<scatter_element>>;
};
template <access_flags Rights>
concept CanScatterPart = requires(const memory_region<Rights>& region) {
  { region.scatter(0, 1) } -> std::same_as<result<scatter_element>>;
};
template <access_flags Rights>
concept CanScatterUnchecked = requires(const memory_region<Rights>& region) {
  { region.scatter_unchecked(0, 1) } -> std::same_as<scatter_element>;
};
template <access_flags Rights>
concept CanScatter = CanScatterAll<Rights> && CanScatterPart<Rights> && CanScatterUnchecked<Rights>;
template <access_flags Rights>
concept CannotScatter =
    !CanScatterAll<Rights> && !CanScatterPart<Rights> && !CanScatterUnchecked<Rights>;

static_assert(CanGather<local_read>);
static_assert(CanGather<local_write>);
static_assert(CanGather<remote_read>);
static_assert(CannotScatter<local_read>);
static_assert(CannotScatter<remote_read>);
static_assert(CanScatter<local_write>);
static_assert(CanScatter < local_write | all_remote >);

template <access_flags Rights>
concept HasRemote = requires(const memory_region<Rights>& region) { region.remote(); };

static_assert(!HasRemote<local_read>);
static_assert(!HasRemote<local_write>);
static_assert(HasRemote<remote_read>);
static_assert(HasRemote < local_write | remote_write >);
static_assert(HasRemote < local_write | remote_atomic >);

template <access_flags Rights>
using remote_of =
    typename decltype(std::declval<const memory_region<Rights>&>().remote())::value_type;

static_assert(std::same_as<remote_of<remote_read>, remote_memory<remote_read>>);
static_assert(std::same_as<remote_of<local_write | all_remote>, remote_memory<all_remote>>,
              "a peer has no use for local write");

template <access_flags Rights, class Memory>
concept CanRegister = requires(const protection_domain& domain, Memory memory) {
  {
    register_memory<Rights>(domain, static_cast<Memory>(memory))
  } -> std::same_as<result<memory_region<Rights>>>;
};

static_assert(CanRegister<local_read, std::span<std::byte>>);
static_assert(CanRegister<remote_read, std::span<std::byte>>);
static_assert(CanRegister < local_write | all_remote, std::span < std::byte >>);
static_assert(!CanRegister<remote_write, std::span<std::byte>>, "the verbs need local write");
static_assert(!CanRegister<remote_atomic, std::span<std::byte>>, "the verbs need local write");
static_assert(!CanRegister < remote_read | remote_write, std::span < std::byte >>);

static_assert(CanRegister<local_write, std::vector<int>&>);
static_assert(CanRegister<local_write, std::array<char, 4>&>);
static_assert(CanRegister<local_write, int (&)[4]>);
static_assert(CanRegister<local_write, std::string&>);

static_assert(CanRegister<local_read, std::span<const std::byte>>);
static_assert(CanRegister<remote_read, const std::vector<int>&>);
static_assert(!CanRegister<local_write, std::span<const std::byte>>, "the device would write");
static_assert(!CanRegister<local_write, const std::vector<int>&>);
static_assert(!CanRegister<local_write, const int (&)[4]>);

static_assert(!CanRegister<local_read, std::vector<int>>, "destroyed when the call returns");
static_assert(!CanRegister<local_read, std::array<char, 4>>, "destroyed when the call returns");
static_assert(!CanRegister<local_read, std::vector<std::string>&>, "more than bytes");
static_assert(!CanRegister<local_read, std::vector<bool>&>, "not in memory as such");
static_assert(!CanRegister<local_read, int&>);
static_assert(!CanRegister<local_read, void*>);

// The rights that a memory window may grant.

template <access_flags Rights, access_flags OfWindow>
concept CanShow = requires(const memory_region<Rights>& region) {
  { region.template window_part<OfWindow>(0, 1) } -> std::same_as<result<window_part<OfWindow>>>;
};
static_assert(CanShow<window_bind, remote_read>, "the region itself needs no remote right");
static_assert(CanShow < window_bind | local_write, all_remote >);
static_assert(CanShow < window_bind | local_write | remote_read, remote_write >);
static_assert(!CanShow < local_write | all_remote, remote_read >, "not registered for windows");
static_assert(!CanShow<window_bind, remote_write>, "the verbs need local write");
static_assert(!CanShow<window_bind, remote_atomic>, "the verbs need local write");
static_assert(!CanShow < window_bind, remote_read | remote_write >);
static_assert(!CanShow < window_bind | local_write, local_write >, "not for a peer");
static_assert(!CanShow < window_bind | local_write, remote_read | window_bind >);
static_assert(!CanShow < window_bind | local_write, local_read >, "no right at all");
static_assert(!HasRemote < window_bind | local_write >, "only windows give access to it");
static_assert(CanRegister<window_bind, std::span<const std::byte>>);
static_assert(std::same_as<remote_of<remote_read | window_bind>, remote_memory<remote_read>>);
static_assert(
    std::same_as<decltype(std::declval<window_part<remote_read>>().remote(remote_key(0U))),
                 remote_memory<remote_read>>,
    "the peer's handle has the window's rights");
static_assert(!std::is_constructible_v<window_part<remote_read>, ibv_mw_bind_info>,
              "its rights are not known");
static_assert(!std::is_convertible_v<window_part<remote_read>, window_part<all_remote>>);

// Memory whose elements are const cannot be registered with local write, whichever function
// registers it.

template <access_flags Rights, class Memory>
concept CanRegisterAt = requires(const protection_domain& domain, Memory memory) {
  register_memory_at<Rights>(domain, 0, static_cast<Memory>(memory));
};
static_assert(CanRegisterAt<local_write, std::span<std::byte>>);
static_assert(!CanRegisterAt<local_write, std::span<const std::byte>>);
static_assert(!CanRegisterAt<remote_write, std::span<std::byte>>);

template <access_flags Rights, access_flags NewRights>
concept CanChangeRights = requires(memory_region<Rights> region) {
  std::move(region).template change_rights<NewRights>();
};
static_assert(CanChangeRights < local_write, local_write | remote_write >);
static_assert(CanChangeRights<local_write, local_read>);
static_assert(!CanChangeRights<local_read, local_write>, "the memory may be constant");
template <access_flags NewRights, class Memory>
concept CanChangeRightsOf = requires(memory_region<local_read> region, Memory memory) {
  std::move(region).template change_rights<NewRights>(static_cast<Memory>(memory));
};
static_assert(CanChangeRightsOf<local_write, std::span<std::byte>>);
static_assert(!CanChangeRightsOf<local_write, std::span<const std::byte>>);
static_assert(CanChangeRightsOf<local_read, std::span<const std::byte>>);
static_assert(!CanChangeRights<local_read, remote_write>, "the verbs need local write");
template <access_flags Rights>
concept CanChangeRightsOfAnLvalue =
    requires(memory_region<Rights>& region) { region.template change_rights<local_write>(); };
static_assert(!CanChangeRightsOfAnLvalue<local_read>, "it consumes the region");

// A typed view into a peer's memory has the rights of that memory.
static_assert(std::is_convertible_v<remote_object<int, remote_read>, remote_source>);
static_assert(!std::is_convertible_v<remote_object<int, remote_read>, remote_destination>);
static_assert(std::is_convertible_v<remote_array<int, remote_write>, remote_destination>);
static_assert(!std::is_constructible_v<remote_object<int, remote_read>, remote_memory<remote_read>>,
              "bounds and alignment are checked");

// The peer's memory

template <access_flags From, access_flags To>
concept Becomes = std::is_convertible_v<remote_memory<From>, remote_memory<To>>;

static_assert(Becomes<remote_read, remote_read>);
static_assert(Becomes<all_remote, remote_read>);
static_assert(Becomes < all_remote, remote_write | remote_atomic >);
static_assert(Becomes < remote_read | remote_write, remote_write >);
static_assert(!Becomes<remote_read, remote_write>);
static_assert(!Becomes < remote_read, remote_read | remote_write >);
static_assert(!Becomes<remote_read, all_remote>);
static_assert(!Becomes < remote_read | remote_write, remote_atomic >);

template <access_flags Rights>
concept CanBeWritten = std::is_convertible_v<remote_memory<Rights>, remote_destination>;
template <access_flags Rights>
concept CanBeRead = std::is_convertible_v<remote_memory<Rights>, remote_source>;

static_assert(CanBeWritten<remote_write>);
static_assert(CanBeWritten<all_remote>);
static_assert(!CanBeWritten<remote_read>);
static_assert(!CanBeWritten<remote_atomic>);
static_assert(!CanBeWritten < remote_read | remote_atomic >);
static_assert(CanBeRead<remote_read>);
static_assert(CanBeRead<all_remote>);
static_assert(!CanBeRead<remote_write>);
static_assert(!CanBeRead<remote_atomic>);
static_assert(!CanBeRead < remote_write | remote_atomic >);
static_assert(!std::is_convertible_v<remote_destination, remote_source>);
static_assert(!std::is_convertible_v<remote_source, remote_destination>);

// Elements and lists of elements

static_assert(std::is_convertible_v<scatter_element, gather_element>);
static_assert(!std::is_convertible_v<gather_element, scatter_element>);
static_assert(!std::is_convertible_v<ibv_sge, gather_element>, "its rights are not known");
static_assert(!std::is_constructible_v<gather_element, ibv_sge>);

static_assert(std::is_convertible_v<const gather_element&, gather_list>);
static_assert(std::is_convertible_v<const std::vector<gather_element>&, gather_list>);
static_assert(std::is_convertible_v<const std::array<gather_element, 2>&, gather_list>);
static_assert(std::is_convertible_v<std::span<gather_element>, gather_list>);
static_assert(std::is_convertible_v<std::span<const gather_element>, gather_list>);
static_assert(std::is_convertible_v<const std::vector<scatter_element>&, scatter_list>);
static_assert(std::is_convertible_v<const scatter_element&, gather_list>);
static_assert(!std::is_constructible_v<scatter_list, const gather_element&>);
static_assert(!std::is_constructible_v<scatter_list, const std::vector<gather_element>&>);
static_assert(!std::is_constructible_v<scatter_list, gather_list>);
static_assert(!std::is_constructible_v<gather_list, const std::vector<ibv_sge>&>);
static_assert(!std::is_constructible_v<gather_list, const std::vector<std::byte>&>,
              "only registered memory");

}  // namespace
