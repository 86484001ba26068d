/*
 * quick.c - poll and progress for Python, without the costs of a general call.
 *
 * A general call makes a struct, gives up the interpreter's lock, takes it again, and reads every field on its own. A
 * poll takes no lock and makes no system call, so here it keeps the interpreter's lock, and the whole snapshot is made at
 * once. The library's functions come in as addresses: the library is linked into `_forebay` and must not be there twice.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <forebay/forebay.h>

/* X(field, kind, text): a snapshot as Python sees it, in the order of the C struct. Kinds are the put_ functions. */
#define FIELD_MAP(X)                                                                                                   \
    X(state, state, "State: what the session is doing")                                                                \
    X(handle, number, "int: the session's handle")                                                                     \
    X(version, number, "int: grows with every change")                                                                 \
    X(answered, truth, "bool: the answer is final; fields from outcome to span_end_block do not change any more")      \
    X(outcome, outcome, "Outcome: what the answer amounts to")                                                         \
    X(reason, reason, "Reason: why it stopped claiming")                                                               \
    X(error, code, "int: the failure behind the reason, a negative code, or 0")                                        \
    X(lease_valid, truth, "bool: take() would give what was delivered")                                                \
    X(planned_final, truth, "bool: the plan will not grow")                                                            \
    X(found_tokens, number, "int: tokens proven by index and store")                                                   \
    X(planned_tokens, number, "int: end of the plan, in tokens")                                                       \
    X(loaded_tokens, number, "int: tokens read from the store inside the delivered prefix")                            \
    X(delivered_tokens, number, "int: length of the protected, contiguous, verified prefix, in tokens")                \
    X(start_blocks, number, "int: where the plan starts, in blocks")                                                   \
    X(committed_blocks, number, "int: published without a gap up to here, in blocks")                                  \
    X(cursor_blocks, number, "int: claimed up to here, in blocks")                                                     \
    X(delivered_blocks, number, "int: length of the delivered prefix, in blocks")                                      \
    X(span_start_block, number, "int: first block loaded from the store and delivered")                                \
    X(span_end_block, number, "int: end of those blocks")                                                              \
    X(inflight_chunks, number, "int: chunks in flight")                                                                \
    X(inflight_bytes, number, "int: bytes in flight")                                                                  \
    X(submitted, number, "int: graphs and joins claimed so far")                                                       \
    X(sealed_submit_seq, number, "int: `submitted` at the seal")                                                       \
    X(created_ns, number, "int: monotonic time of the start, in nanoseconds")                                          \
    X(sealed_ns, number, "int: monotonic time of the seal; 0: not yet")                                                \
    X(answered_ns, number, "int: monotonic time of the answer; 0: not yet")                                            \
    X(terminal_ns, number, "int: monotonic time of the end of all its work; 0: not yet")

enum {
#define X(field, kind, text) FIELD_##field,
    FIELD_MAP(X)
#undef X
        FIELD_COUNT
};

typedef int poll_call(fby_cache_t *cache, fby_session_t session, fby_snapshot_t *snapshot);
typedef int progress_call(fby_cache_t *cache, const fby_session_t *sessions, const uint8_t *demand, size_t n,
                          fby_snapshot_t *snapshots);

/* Set once, by bind(), before anything else is called. The references are never given back. */
static PyTypeObject *snapshot_type;
static poll_call *library_poll;
static progress_call *library_progress;
static PyObject *states, *outcomes, *reasons, *raise_error;

/* ---- Snapshots -------------------------------------------------------------------------------------------------- */

/* The member of an enumeration, or the bare number when a newer library has more of them. */
static PyObject *member(PyObject *members, int64_t value)
{
    if (value < 0 || value >= PyTuple_Size(members)) {
        return PyLong_FromLongLong(value);
    }
    PyObject *found = PyTuple_GetItem(members, (Py_ssize_t)value);
    Py_XINCREF(found);
    return found;
}

static PyObject *put_state(int64_t value)
{
    return member(states, value);
}

static PyObject *put_outcome(int64_t value)
{
    return member(outcomes, value);
}

static PyObject *put_reason(int64_t value)
{
    return member(reasons, value);
}

static PyObject *put_truth(uint64_t value)
{
    return PyBool_FromLong(value != 0);
}

static PyObject *put_code(int64_t value)
{
    return PyLong_FromLongLong(value);
}

static PyObject *put_number(uint64_t value)
{
    return PyLong_FromUnsignedLongLong(value);
}

static PyObject *snapshot_make(const fby_snapshot_t *snapshot)
{
    PyObject *made = PyStructSequence_New(snapshot_type);
    if (made == NULL) {
        return NULL;
    }
#define X(field, kind, text) PyStructSequence_SetItem(made, FIELD_##field, put_##kind(snapshot->field));
    FIELD_MAP(X)
#undef X
    if (PyErr_Occurred() != NULL) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}

/* Always NULL, with the exception that Python's side makes of the code and the library's detail. */
static PyObject *fail(int code)
{
    PyObject *nothing = PyObject_CallFunction(raise_error, "i", code);
    if (nothing != NULL) {
        Py_DECREF(nothing);
        PyErr_Format(PyExc_SystemError, "code %d raised nothing", code);
    }
    return NULL;
}

static int is_bound(void)
{
    if (library_poll == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "bind() comes first");
    }
    return library_poll != NULL;
}

static PyObject *quick_poll(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    fby_snapshot_t snapshot;
    if (!is_bound()) {
        return NULL;
    }
    if (count != 2) {
        PyErr_Format(PyExc_TypeError, "poll takes a cache and a session, %zd arguments were given", count);
        return NULL;
    }
    fby_cache_t *cache = PyLong_AsVoidPtr(arguments[0]);
    fby_session_t session = PyLong_AsUnsignedLongLong(arguments[1]);
    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    snapshot.size = sizeof(snapshot);
    int rc = library_poll(cache, session, &snapshot);
    return rc == 0 ? snapshot_make(&snapshot) : fail(rc);
}

static PyObject *quick_snapshot(PyObject *module, PyObject *address)
{
    const fby_snapshot_t *snapshot = PyLong_AsVoidPtr(address);
    if (!is_bound() || PyErr_Occurred() != NULL) {
        return NULL;
    }
    return snapshot_make(snapshot);
}

/* ---- Progress --------------------------------------------------------------------------------------------------- */

/* One allocation for a whole pass. */
typedef struct pass {
    size_t n;
    fby_snapshot_t *snapshots;
    fby_session_t *sessions;
    uint8_t *demand;
} pass_t;

static int pass_make(pass_t *pass, size_t n)
{
    pass->n = n;
    pass->snapshots = PyMem_Malloc(n * (sizeof(*pass->snapshots) + sizeof(*pass->sessions) + 1) + 1);
    if (pass->snapshots == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    pass->sessions = (fby_session_t *)(pass->snapshots + n);
    pass->demand = (uint8_t *)(pass->sessions + n);
    return 1;
}

/* `demand` may be None. */
static int pass_fill(pass_t *pass, PyObject *handles, PyObject *demand)
{
    for (size_t i = 0; i < pass->n; i++) {
        pass->snapshots[i].size = sizeof(pass->snapshots[i]);
        pass->sessions[i] = PyLong_AsUnsignedLongLong(PyList_GetItem(handles, (Py_ssize_t)i));
        if (PyErr_Occurred() != NULL) {
            return 0;
        }
        if (demand != Py_None) {
            int wanted = PyObject_IsTrue(PyList_GetItem(demand, (Py_ssize_t)i));
            if (wanted < 0) {
                return 0;
            }
            pass->demand[i] = (uint8_t)wanted;
        }
    }
    return 1;
}

static PyObject *pass_result(const pass_t *pass)
{
    PyObject *list = PyList_New((Py_ssize_t)pass->n);
    for (size_t i = 0; list != NULL && i < pass->n; i++) {
        PyObject *made = snapshot_make(&pass->snapshots[i]);
        if (made == NULL || PyList_SetItem(list, (Py_ssize_t)i, made) != 0) {
            Py_DECREF(list);
            list = NULL;
        }
    }
    return list;
}

/* Demands take the cache's lock, one moment for each sixteen: the interpreter's lock is let go for that. */
static int pass_run(pass_t *pass, fby_cache_t *cache, int with_demand)
{
    int rc;
    if (!with_demand) {
        return library_progress(cache, pass->sessions, NULL, pass->n, pass->snapshots);
    }
    Py_BEGIN_ALLOW_THREADS rc = library_progress(cache, pass->sessions, pass->demand, pass->n, pass->snapshots);
    Py_END_ALLOW_THREADS return rc;
}

static PyObject *quick_progress(PyObject *module, PyObject *arguments)
{
    PyObject *address, *handles, *demand, *result = NULL;
    pass_t pass;
    if (!is_bound() || !PyArg_ParseTuple(arguments, "OO!O:progress", &address, &PyList_Type, &handles, &demand)) {
        return NULL;
    }
    if (demand != Py_None && (!PyList_Check(demand) || PyList_Size(demand) != PyList_Size(handles))) {
        PyErr_SetString(PyExc_ValueError, "demand must be None or a list with one item for each session");
        return NULL;
    }
    fby_cache_t *cache = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred() != NULL || !pass_make(&pass, (size_t)PyList_Size(handles))) {
        return NULL;
    }
    if (pass_fill(&pass, handles, demand)) {
        int rc = pass_run(&pass, cache, demand != Py_None);
        result = rc == 0 ? pass_result(&pass) : fail(rc);
    }
    PyMem_Free(pass.snapshots);
    return result;
}

/* ---- Module ----------------------------------------------------------------------------------------------------- */

static PyObject *quick_bind(PyObject *module, PyObject *arguments)
{
    PyObject *poll, *progress, *given[4];
    if (!PyArg_ParseTuple(arguments, "OOO!O!O!O:bind", &poll, &progress, &PyTuple_Type, &given[0], &PyTuple_Type,
                          &given[1], &PyTuple_Type, &given[2], &given[3])) {
        return NULL;
    }
    poll_call *poll_address = (poll_call *)PyLong_AsVoidPtr(poll);
    progress_call *progress_address = (progress_call *)PyLong_AsVoidPtr(progress);
    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    for (int i = 0; i < 4; i++) {
        Py_INCREF(given[i]);
    }
    states = given[0];
    outcomes = given[1];
    reasons = given[2];
    raise_error = given[3];
    library_poll = poll_address;
    library_progress = progress_address;
    Py_RETURN_NONE;
}

static PyStructSequence_Field snapshot_fields[] = {
#define X(field, kind, text) {#field, text},
    FIELD_MAP(X)
#undef X
        {NULL, NULL},
};

static PyStructSequence_Desc snapshot_description = {
    .name = "forebay.Snapshot",
    .doc = "A consistent picture of a session. Immutable; a named tuple.",
    .fields = snapshot_fields,
    .n_in_sequence = FIELD_COUNT,
};

static PyMethodDef functions[] = {
    {"bind", quick_bind, METH_VARARGS, "bind(poll, progress, states, outcomes, reasons, raise_error)"},
    {"poll", (PyCFunction)(void (*)(void))quick_poll, METH_FASTCALL, "poll(cache, session): a snapshot"},
    {"progress", quick_progress, METH_VARARGS, "progress(cache, sessions, demand): a list of snapshots"},
    {"snapshot", quick_snapshot, METH_O, "snapshot(address): what lies there as a Snapshot"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_quick",
    .m_doc = "Poll and progress, without giving up the interpreter's lock.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__quick(void); /* declared, as every function that others see */
PyMODINIT_FUNC PyInit__quick(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    snapshot_type = PyStructSequence_NewType(&snapshot_description);
    if (snapshot_type == NULL || PyModule_AddObject(module, "Snapshot", (PyObject *)snapshot_type) != 0) {
        Py_XDECREF(snapshot_type);
        Py_DECREF(module);
        return NULL;
    }
    Py_INCREF(snapshot_type); /* ours, beside the module's */
    return module;
}
