/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TMA descriptors. A CUtensorMap is opaque, the address is encoded inside; so what the driver
 * encoded is remembered: 128 bytes -> global address.
 *
 * Any thread. Never asks the driver.
 */
#ifndef SHIM_TENSORMAP_H
#define SHIM_TENSORMAP_H

#include <stdbool.h>
#include <stdint.h>

#define TENSORMAP_BYTES 128
#define TENSORMAP_ALIGN 64 /* what the device needs; newer headers align to 128 */

/* @brief The driver wrote @address into these 128 bytes. The oldest of many is forgotten, and
 * counted in coverage. */
void tensormap_remember(const void *bytes, uint64_t address);

/* @brief Was one ever remembered, and one forgotten? One load each. */
bool tensormap_any(void);
bool tensormap_forgot(void);

/* @brief Are these 128 bytes a descriptor that was remembered? One load if none ever was. */
bool tensormap_find(const void *bytes, uint64_t *address);

#endif
