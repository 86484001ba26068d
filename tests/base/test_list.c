#include "unit.h"

#include "base/list.h"

enum { HEAD = 0, OTHER = 1, LINKS = 8 };

static void init(fby_link_t links[LINKS])
{
    for (uint32_t id = 0; id < LINKS; id++) {
        fby_list_init(links, id);
    }
}

/* The list as digits, front first: "234". */
static const char *shown(const fby_link_t *links, uint32_t head)
{
    static char text[LINKS + 1];
    size_t n = 0;
    for (uint32_t id = links[head].next; id != head; id = links[id].next) {
        assert_true(n < LINKS);
        text[n++] = (char)('0' + id);
    }
    text[n] = '\0';
    return text;
}

static void an_empty_list_has_neither_front_nor_back(void **state)
{
    fby_link_t links[LINKS];
    init(links);
    assert_true(fby_list_empty(links, HEAD));
    assert_int_equal(fby_list_front(links, HEAD), FBY_NONE);
    assert_int_equal(fby_list_back(links, HEAD), FBY_NONE);
}

static void pushes_go_to_their_ends(void **state)
{
    fby_link_t links[LINKS];
    init(links);
    fby_list_push_back(links, HEAD, 3);
    fby_list_push_back(links, HEAD, 4);
    fby_list_push_front(links, HEAD, 2);
    fby_list_insert_after(links, 3, 7);
    assert_string_equal(shown(links, HEAD), "2374");
    assert_int_equal(fby_list_front(links, HEAD), 2);
    assert_int_equal(fby_list_back(links, HEAD), 4);
}

static void a_removed_id_can_go_on_another_list(void **state)
{
    fby_link_t links[LINKS];
    init(links);
    fby_list_push_back(links, HEAD, 2);
    fby_list_push_back(links, HEAD, 3);
    fby_list_remove(links, 2);
    assert_false(fby_list_linked(links, 2));
    fby_list_push_back(links, OTHER, 2);
    assert_true(fby_list_linked(links, 2));
    assert_string_equal(shown(links, HEAD), "3");
    assert_string_equal(shown(links, OTHER), "2");
}

static void removing_twice_is_harmless(void **state)
{
    fby_link_t links[LINKS];
    init(links);
    fby_list_push_back(links, HEAD, 2);
    fby_list_remove(links, 2);
    fby_list_remove(links, 2);
    assert_true(fby_list_empty(links, HEAD));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_list_has_neither_front_nor_back),
        cmocka_unit_test(pushes_go_to_their_ends),
        cmocka_unit_test(a_removed_id_can_go_on_another_list),
        cmocka_unit_test(removing_twice_is_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
