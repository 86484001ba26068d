/* Columns are as wide as their widest cell, counted in characters. */
#include "cli/table.h"
#include "unit.h"

static void columns_line_up(void **state)
{
    static const char *const titles[] = {"name", "n", "what"};
    static const bool right[] = {false, true, false};
    fby_table_t table;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    fby_table_init(&table, 3, titles, right);
    fby_table_cell(&table, "a");
    fby_table_cell(&table, "%d", 12345);
    fby_table_cell(&table, "x");
    fby_table_cell(&table, "gr\xC3\xBC\xC3\x9F"
                           "er");
    fby_table_cell(&table, "%d", 7);
    fby_table_cell(&table, "longer than its title");
    fby_table_print(&table, out);
    fclose(out);
    assert_string_equal(text, "name        n  what\n"
                              "a       12345  x\n"
                              "gr\xC3\xBC\xC3\x9F"
                              "er      7  longer than its title\n");
    free(text);
    fby_table_free(&table);
}

static void a_table_without_rows_has_a_head(void **state)
{
    static const char *const titles[] = {"name", "n"};
    static const bool right[] = {false, true};
    fby_table_t table;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    fby_table_init(&table, 2, titles, right);
    fby_table_print(&table, out);
    fclose(out);
    assert_string_equal(text, "name  n\n");
    free(text);
    fby_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(columns_line_up),
                                     cmocka_unit_test(a_table_without_rows_has_a_head)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
