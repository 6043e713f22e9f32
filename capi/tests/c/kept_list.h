/* A list in a kept heap: its numbers fall by one to 0, from the head, which is a place in the heap. */
#ifndef KEPT_LIST_H
#define KEPT_LIST_H

#include "check.h"

struct node {
    uint64_t next;
    uint64_t number;
};

static inline int length(lode_kept *of, int64_t head)
{
    int count = 0;
    uint64_t last = 0;
    for (int64_t at = lode_kept_named(of, head); at != 0; count++) {
        const struct node *node = lode_kept_address(of, at);
        CHECK(node != NULL && (count == 0 || node->number + 1 == last));
        GIVES(lode_kept_offset(of, node), at);
        CHECK(lode_kept_usable_size(of, at) >= (int64_t)sizeof *node);
        last = node->number;
        at = (int64_t)node->next;
    }
    GIVES(last, 0);
    return count;
}

static inline void push(lode_kept *to, int64_t head, uint64_t number)
{
    struct node node = {(uint64_t)lode_kept_named(to, head), number};
    CHECK(lode_kept_copy_into(to, head, &node, sizeof node) > 0);
}

#endif
