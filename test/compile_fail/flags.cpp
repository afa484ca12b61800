// SPDX-License-Identifier: Apache-2.0
// Never built: the checks take this file's compile command from compile_commands.json.
