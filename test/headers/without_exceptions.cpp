// SPDX-License-Identifier: Apache-2.0

#ifdef __cpp_exceptions
#error "compiled with exceptions: this checks nothing"
#endif
#ifdef __cpp_rtti
#error "compiled with RTTI: this checks nothing"
#endif

#include <verbspp/calls.hpp>
#include <verbspp/channel.hpp>
#include <verbspp/cm.hpp>
#include <verbspp/exchange.hpp>
#include <verbspp/fwd.hpp>
#include <verbspp/group.hpp>
#include <verbspp/ranks.hpp>
#include <verbspp/sender.hpp>
#include <verbspp/verbspp.hpp>
