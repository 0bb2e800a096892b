/* SPDX-License-Identifier: Apache-2.0 */
/* A library whose only hash table is of the old kind. Constant. */
#define EXPORT	__attribute__((visibility("default")))

EXPORT int sysv_0(void);
EXPORT int sysv_1(void);
EXPORT int sysv_2(void);
EXPORT int sysv_3(void);

int sysv_0(void) { return 0; }
int sysv_1(void) { return 1; }
int sysv_2(void) { return 2; }
int sysv_3(void) { return 3; }
