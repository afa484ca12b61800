// SPDX-License-Identifier: Apache-2.0
/// \file
/// Connects queue pairs and channels by IP address, through librdmacm's connection manager. This is
/// part of a separate library, `verbspp-cm`.
#pragma once

#include <verbspp/channel.hpp>
#include <verbspp/cm/cm_address.hpp>
#include <verbspp/cm/cm_connection.hpp>
#include <verbspp/cm/cm_datagram.hpp>
#include <verbspp/cm/cm_event.hpp>
#include <verbspp/cm/cm_listener.hpp>
#include <verbspp/cm/cm_options.hpp>
#include <verbspp/cm/cm_request.hpp>
#include <verbspp/cm/cm_route.hpp>
#include <verbspp/cm/cm_session.hpp>
#include <verbspp/cm/private_data.hpp>
