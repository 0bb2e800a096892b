/* SPDX-License-Identifier: Apache-2.0 */
/* The public headers in C and C++: each struct, and one call of each kind. header.sh runs it. */
#include "arena/client.h"
#include "arena/derive.h"

#include <stdio.h>

int main(void)
{
	struct arena_spec spec = ARENA_SPEC_INIT;
	struct arena_scope scope = ARENA_SCOPE_INIT;
	struct arena_status state = ARENA_STATUS_INIT;
	struct arena_derivation derivation = ARENA_DERIVATION_INIT;
	struct arena *a = NULL;
	int ok = spec.struct_bytes == sizeof(spec) && scope.struct_bytes == sizeof(scope) &&
		 state.struct_bytes == sizeof(state) && spec.bytes == 0 && scope.role == NULL &&
		 derivation.struct_bytes == sizeof(derivation) &&
		 (arena_abi() != 0 || arena_derive(a, &derivation) == ARENA_E_ABSENT) &&
		 (arena_abi() != 0 || arena_reload_doubt("why") == ARENA_E_ABSENT) &&
		 (arena_abi() != 0 || arena_reload_wrote(&spec, 1) == ARENA_E_ABSENT);

	/* What the library would refuse, so that it is not started. */
	printf("%d %d %d\n", arena_abi(), ok, arena_last_message(NULL, 1));
	return a != NULL || *arena_strerror(ARENA_E_SPEC) == '\0';
}
