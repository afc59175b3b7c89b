# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Where the process keeps what is too large for Python's arenas, bodies of messages first of all, and the objects
that messages are made of.

The C library keeps what was freed between what is not, and to have it give that back locks it for as long as that
takes: half a second after a burst of 5 GB. Here freed memory goes back a slab at a time, from a thread of its own, while
nobody waits for it; and what is used is counted, so that a memory alarm need not guess.

    space     one reservation of addresses, in parts of 256 GiB, one for each size of slab
    slab      objects of one class of size, at least 8 of them, or one if they are large
    class     sizes up to 1/8 apart, so that 1/16 is lost as a rule

    slab      in use  ->  empty  ->  given back  ->  in use
                          its pages are kept for the next burst, until nobody has wanted them for a second or two

A slab is chosen by the first that has room. Requests of up to 512 bytes Python keeps in its arenas, and those beyond
16 MiB go to the C library, which maps each of them alone. Whoever asks without the interpreter's lock gets its turn by
a lock of our own; `Message` and `Entry` are only made and freed under the interpreter's, and so do without it.
"""

from cpython.object cimport PyObject, PyTypeObject
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

cdef extern from "Python.h":
    ctypedef enum PyMemAllocatorDomain:
        PYMEM_DOMAIN_RAW
        PYMEM_DOMAIN_OBJ
    ctypedef struct PyMemAllocatorEx:
        void* ctx
        void* (*malloc)(void* ctx, size_t size) noexcept nogil
        void* (*calloc)(void* ctx, size_t count, size_t size) noexcept nogil
        void* (*realloc)(void* ctx, void* p, size_t size) noexcept nogil
        void (*free)(void* ctx, void* p) noexcept nogil
    void PyMem_GetAllocator(PyMemAllocatorDomain domain, PyMemAllocatorEx* allocator)
    void PyMem_SetAllocator(PyMemAllocatorDomain domain, PyMemAllocatorEx* allocator)
    void PyObject_Free(void* p)
    PyObject* PyObject_Init(PyObject* o, PyTypeObject* kind)
    PyObject* PyErr_NoMemory()

cdef extern from *:
    """
    #include <Python.h>
    #include <malloc.h>
    #include <pthread.h>
    #include <sys/mman.h>
    static pthread_mutex_t warren_slabs_lock = PTHREAD_MUTEX_INITIALIZER;
    static long long warren_library_bytes = 0;
    #define warren_lock() pthread_mutex_lock(&warren_slabs_lock)
    #define warren_unlock() pthread_mutex_unlock(&warren_slabs_lock)
    #define warren_count(n) __atomic_fetch_add(&warren_library_bytes, (long long)(n), __ATOMIC_RELAXED)
    #define warren_counted() __atomic_load_n(&warren_library_bytes, __ATOMIC_RELAXED)
    #define warren_log2(n) (63 - __builtin_clzll((unsigned long long)(n)))
    #if defined(__GLIBC__)
    #define WARREN_KNOWS_LIBRARY 1
    #define warren_usable(p) malloc_usable_size(p)
    #else
    #define WARREN_KNOWS_LIBRARY 0
    #define warren_usable(p) 0
    #endif
    static size_t warren_library_used(void) {
    #if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
        struct mallinfo2 m = mallinfo2();
        return m.uordblks + m.hblkhd;
    #else
        return 0;
    #endif
    }
    static void warren_library_limits(void) {
    #if defined(__GLIBC__)
        mallopt(M_MMAP_THRESHOLD, 1024 * 1024);
        mallopt(M_TRIM_THRESHOLD, 4 * 1024 * 1024);
        mallopt(M_ARENA_MAX, 2);
    #endif
    }
    #define warren_is_collected(kind) PyType_IS_GC(kind)
    static void warren_adopt(PyTypeObject* kind, allocfunc alloc, freefunc release) {
        kind->tp_alloc = alloc;
        kind->tp_free = release;
        PyType_Modified(kind);
    }
    """
    void lock "warren_lock"() noexcept nogil
    void unlock "warren_unlock"() noexcept nogil
    void count_library "warren_count"(long long change) noexcept nogil
    long long counted_library "warren_counted"() noexcept nogil
    int log2_of "warren_log2"(size_t n) noexcept nogil
    bint KNOWS_LIBRARY "WARREN_KNOWS_LIBRARY"
    size_t usable "warren_usable"(void* p) noexcept nogil
    size_t library_used "warren_library_used"() noexcept nogil
    void limit_library "warren_library_limits"() noexcept nogil
    bint is_collected "warren_is_collected"(PyTypeObject* kind)
    void adopt_type "warren_adopt"(PyTypeObject* kind, void* alloc, void* release)

cdef extern from "<sys/mman.h>" nogil:
    enum: PROT_READ
    enum: PROT_WRITE
    enum: MAP_PRIVATE
    enum: MAP_ANONYMOUS
    enum: MAP_NORESERVE
    enum: MADV_DONTNEED
    enum: MADV_DONTDUMP
    enum: MADV_NOHUGEPAGE
    void* MAP_FAILED
    void* mmap(void* address, size_t size, int protection, int flags, int fd, long offset) noexcept
    int munmap(void* address, size_t size) noexcept
    int madvise(void* address, size_t size, int advice) noexcept

cdef enum:
    PYTHON_BYTES_MAX = 512          # up to this Python has its own arenas
    BYTES_MAX = 16 * 1024 * 1024
    EXPONENT_MIN = 9                # classes begin above 2 ** 9 bytes
    STEPS = 8                       # classes for each doubling
    CLASSES = 15 * STEPS            # for 512 bytes up to 16 MiB
    OBJECT_CLASSES = 4
    SLAB_BITS_MIN = 16              # 64 KiB
    SLAB_SIZES = 9                  # 64 KiB to 16 MiB
    PART_BITS = 38                  # addresses for slabs of one size: 256 GiB
    OBJECTS_MIN = 8
    SHARED_BITS_MAX = 19            # from objects of this size on, 512 KiB, a slab is for one alone
    NONE = 0                        # slabs are numbered from 1 on

cdef struct Slab:
    void* freed         # a chain of objects that were freed
    uint32_t used       # objects
    uint32_t made       # objects that were ever handed out since it came into use
    uint32_t before     # in the list that it is in
    uint32_t behind
    uint32_t kind       # which class it is of

cdef struct SlabList:
    uint32_t first
    uint32_t last
    uint32_t count

cdef struct Class:
    uint32_t bytes      # of an object
    uint32_t objects    # in a slab
    uint32_t size       # which size of slab it takes: 64 KiB << size
    uint64_t used       # objects
    SlabList partial    # slabs that have room

cdef struct Part:
    uint8_t* base
    Slab* slabs
    uint32_t made       # slabs that were ever in use
    SlabList empty      # with their pages
    SlabList gone       # without

cdef uint8_t* space = NULL
cdef size_t space_bytes = 0
cdef Part parts[SLAB_SIZES]
cdef Class classes[CLASSES + OBJECT_CLASSES]
cdef int object_classes = 0
cdef uint64_t slab_bytes_used = 0     # of slabs that have objects
cdef uint64_t empty_bytes = 0         # of slabs that have none, but pages
cdef uint64_t empty_bytes_least = 0   # the lowest of that since it was last asked for


# --- lists of slabs ---


cdef inline void put_first(Slab* slabs, SlabList* where, uint32_t number) noexcept nogil:
    slabs[number].before = NONE
    slabs[number].behind = where.first
    if where.first != NONE:
        slabs[where.first].before = number
    else:
        where.last = number
    where.first = number
    where.count += 1


cdef inline void take_from(Slab* slabs, SlabList* where, uint32_t number) noexcept nogil:
    cdef Slab* slab = &slabs[number]
    if slab.before != NONE:
        slabs[slab.before].behind = slab.behind
    else:
        where.first = slab.behind
    if slab.behind != NONE:
        slabs[slab.behind].before = slab.before
    else:
        where.last = slab.before
    where.count -= 1


# --- slabs ---


cdef inline size_t bytes_of_slab(uint32_t size) noexcept nogil:
    return <size_t>1 << (SLAB_BITS_MIN + size)


cdef uint32_t begin_slab(Class* kind, uint32_t kind_number) noexcept nogil:
    """One that is empty, in use for a class from now on; NONE if there is none left."""
    global empty_bytes, empty_bytes_least, slab_bytes_used
    cdef Part* part = &parts[kind.size]
    cdef uint32_t number = part.empty.first
    if number != NONE:
        take_from(part.slabs, &part.empty, number)
        empty_bytes -= bytes_of_slab(kind.size)
        empty_bytes_least = min(empty_bytes_least, empty_bytes)
    elif part.gone.first != NONE:
        number = part.gone.first
        take_from(part.slabs, &part.gone, number)
    elif part.made + 2 >= <uint32_t>(<uint64_t>1 << (PART_BITS - SLAB_BITS_MIN - kind.size)):
        return NONE
    else:
        part.made += 1
        number = part.made
    part.slabs[number].freed = NULL
    part.slabs[number].used = part.slabs[number].made = 0
    part.slabs[number].kind = kind_number
    put_first(part.slabs, &kind.partial, number)
    slab_bytes_used += bytes_of_slab(kind.size)
    return number


cdef void end_slab(Class* kind, uint32_t number) noexcept nogil:
    global empty_bytes, slab_bytes_used
    cdef Part* part = &parts[kind.size]
    take_from(part.slabs, &kind.partial, number)
    put_first(part.slabs, &part.empty, number)
    slab_bytes_used -= bytes_of_slab(kind.size)
    empty_bytes += bytes_of_slab(kind.size)


# --- objects ---


cdef inline uint32_t class_of(size_t size) noexcept nogil:
    """The class of the smallest objects that have room for so many bytes."""
    cdef int exponent = log2_of(size - 1)
    return (exponent - EXPONENT_MIN) * STEPS + (((size - 1) >> (exponent - 3)) & (STEPS - 1))


cdef inline void* take_object(Class* kind, uint32_t number) noexcept nogil:
    """From slab `number`, which has room."""
    cdef Part* part = &parts[kind.size]
    cdef Slab* slab = &part.slabs[number]
    cdef void* p = slab.freed
    if p != NULL:
        slab.freed = (<void**>p)[0]
    else:
        p = part.base + (<size_t>number << (SLAB_BITS_MIN + kind.size)) + <size_t>slab.made * kind.bytes
        slab.made += 1
    slab.used += 1
    kind.used += 1
    if slab.used == kind.objects:
        take_from(part.slabs, &kind.partial, number)
    return p


cdef inline bint is_ours(void* p) noexcept nogil:
    return <uintptr_t>p - <uintptr_t>space < space_bytes


cdef inline Class* class_at(void* p, uint32_t* number, Slab** slab) noexcept nogil:
    """Of an object of ours; also the slab that it is in."""
    cdef size_t at = <uintptr_t>p - <uintptr_t>space
    cdef uint32_t size = <uint32_t>(at >> PART_BITS)
    number[0] = <uint32_t>((at & ((<size_t>1 << PART_BITS) - 1)) >> (SLAB_BITS_MIN + size))
    slab[0] = &parts[size].slabs[number[0]]
    return &classes[slab[0].kind]


cdef inline bint give_object(Class* kind, Slab* slab, uint32_t number, void* p) noexcept nogil:
    """Whether its slab is empty now."""
    if slab.used == kind.objects:
        put_first(parts[kind.size].slabs, &kind.partial, number)
    (<void**>p)[0] = slab.freed
    slab.freed = p
    slab.used -= 1
    kind.used -= 1
    return slab.used == 0


# --- what Python asks for ---


cdef void* library_malloc(size_t size) noexcept nogil:
    cdef void* p = malloc(size if size else 1)
    count_library(usable(p) if p != NULL else 0)
    return p


cdef void* take(void* ctx, size_t size) noexcept nogil:
    cdef uint32_t kind, number
    cdef void* p
    if size <= PYTHON_BYTES_MAX or size > BYTES_MAX:
        return library_malloc(size)
    kind = class_of(size)
    lock()
    number = classes[kind].partial.first
    if number == NONE:
        number = begin_slab(&classes[kind], kind)
    p = take_object(&classes[kind], number) if number != NONE else NULL
    unlock()
    return p if p != NULL else library_malloc(size)


cdef void give(void* ctx, void* p) noexcept nogil:
    cdef uint32_t number = 0
    cdef Slab* slab = NULL
    cdef Class* kind
    if not is_ours(p):
        if p != NULL:
            count_library(-<long long>usable(p))
            free(p)
        return
    lock()
    kind = class_at(p, &number, &slab)
    if give_object(kind, slab, number, p):
        end_slab(kind, number)
    unlock()


cdef void* take_zeros(void* ctx, size_t count, size_t size) noexcept nogil:
    cdef void* p
    if size and count > <size_t>-1 // size:
        return NULL
    if count * size > BYTES_MAX:
        p = calloc(count, size)
        count_library(usable(p) if p != NULL else 0)
        return p
    p = take(ctx, count * size)
    if p != NULL:
        memset(p, 0, count * size)
    return p


cdef void* change(void* ctx, void* p, size_t size) noexcept nogil:
    """Of more than it had, or less."""
    cdef uint32_t number = 0
    cdef Slab* slab = NULL
    cdef size_t had
    cdef void* moved
    if p == NULL:
        return take(ctx, size)
    if is_ours(p):
        had = class_at(p, &number, &slab).bytes
        if size <= had and size >= had // 2:
            return p
    else:
        had = usable(p)
        if size <= PYTHON_BYTES_MAX or size > BYTES_MAX or had > BYTES_MAX:
            moved = realloc(p, size if size else 1)
            if moved != NULL:
                count_library(<long long>usable(moved) - <long long>had)
            return moved
    moved = take(ctx, size)
    if moved != NULL:
        memcpy(moved, p, min(had, size))
        give(ctx, p)
    return moved


# --- messages and entries ---


cdef PyObject* make_object(PyTypeObject* type, Py_ssize_t count) noexcept:
    """An object of a type that was adopted: zeros, but for its head. Under the interpreter's lock."""
    cdef uint32_t kind = CLASSES, number
    cdef void* p = NULL
    while object_types[kind - CLASSES] != type:
        kind += 1
    number = classes[kind].partial.first
    if number == NONE:
        lock()
        number = begin_slab(&classes[kind], kind)
        unlock()
        if number == NONE:
            return PyErr_NoMemory()
    p = take_object(&classes[kind], number)
    memset(p, 0, classes[kind].bytes)
    return PyObject_Init(<PyObject*>p, type)


cdef void free_object(void* p) noexcept:
    cdef uint32_t number = 0
    cdef Slab* slab = NULL
    cdef Class* kind
    if not is_ours(p):
        PyObject_Free(p)  # from before the type was adopted
        return
    kind = class_at(p, &number, &slab)
    if give_object(kind, slab, number, p):
        lock()
        end_slab(kind, number)
        unlock()


cdef PyTypeObject* object_types[OBJECT_CLASSES]


def adopt(type kind):
    """From now on make objects of this type here: one of which there may be millions, and that Python's collector
    does not know.
    """
    global object_classes
    assert object_classes < OBJECT_CLASSES, "there is room for one more"
    cdef PyTypeObject* c_type = <PyTypeObject*>kind
    assert not is_collected(c_type), "the collector would look for its own head before each"
    cdef Class* new = &classes[CLASSES + object_classes]
    new.bytes = (c_type.tp_basicsize + 15) & ~15
    new.size = 0
    new.objects = <uint32_t>(bytes_of_slab(0) // new.bytes)
    object_types[object_classes] = c_type
    object_classes += 1
    adopt_type(c_type, <void*>make_object, <void*>free_object)


# --- the whole ---


cdef bint reserve() noexcept:
    """Addresses for all slabs, and for what is known of them: no memory before they are touched, and that in small
    pages, since the kernel would fill up large ones again of which most was given back.
    """
    global space, space_bytes
    cdef size_t part_bytes = <size_t>1 << PART_BITS
    cdef size_t slab_notes = 0
    cdef uint8_t* notes
    cdef int size
    for size in range(SLAB_SIZES):
        slab_notes += (part_bytes >> (SLAB_BITS_MIN + size)) * sizeof(Slab)
    cdef void* found = mmap(
        NULL, SLAB_SIZES * part_bytes + slab_notes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0,
    )
    if found == MAP_FAILED:
        return False
    madvise(found, SLAB_SIZES * part_bytes + slab_notes, MADV_DONTDUMP)
    madvise(found, SLAB_SIZES * part_bytes + slab_notes, MADV_NOHUGEPAGE)
    space, space_bytes = <uint8_t*>found, SLAB_SIZES * part_bytes
    notes = space + space_bytes
    for size in range(SLAB_SIZES):
        parts[size].base = space + size * part_bytes
        parts[size].slabs = <Slab*>notes
        notes += (part_bytes >> (SLAB_BITS_MIN + size)) * sizeof(Slab)
    return True


cdef void make_classes() noexcept:
    cdef uint32_t number, exponent, bits
    for number in range(CLASSES):
        exponent = EXPONENT_MIN + number // STEPS
        classes[number].bytes = (STEPS + 1 + number % STEPS) << (exponent - 3)
        bits = exponent + 1 if exponent >= SHARED_BITS_MAX else exponent + 4
        classes[number].size = max(bits, <uint32_t>SLAB_BITS_MIN) - SLAB_BITS_MIN
        classes[number].objects = <uint32_t>(bytes_of_slab(classes[number].size) // classes[number].bytes)


cdef bint is_plain() noexcept:
    """Whether Python has its large objects from the C library, and nobody else stands between: a debugger of memory, as
    with `python -X dev`, or a tracer would be given what is not his.
    """
    cdef PyMemAllocatorEx raw, small
    PyMem_GetAllocator(PYMEM_DOMAIN_RAW, &raw)
    PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &small)
    return raw.ctx == NULL and small.malloc != raw.malloc


def install(*types):
    """From now on this process has its memory here, and objects of these types. For a process that is all broker, not
    for an embedding one. Whether it could: not where addresses are rationed, nor where memory is traced or debugged.
    """
    cdef PyMemAllocatorEx allocator
    if space != NULL:
        return True
    if not KNOWS_LIBRARY or not is_plain() or not reserve():
        return False
    make_classes()
    limit_library()
    count_library(<long long>library_used())
    allocator.ctx = NULL
    allocator.malloc, allocator.calloc, allocator.realloc, allocator.free = take, take_zeros, change, give
    PyMem_SetAllocator(PYMEM_DOMAIN_RAW, &allocator)
    for kind in types:
        adopt(kind)
    return True


def is_installed():
    return space != NULL


def used_bytes():
    """Of slabs in use, what is lost in them included."""
    return slab_bytes_used


def object_bytes():
    """Of objects of the types that were adopted."""
    cdef int i
    return sum([classes[CLASSES + i].used * classes[CLASSES + i].bytes for i in range(object_classes)])


def large_bytes():
    """Of all other objects here."""
    cdef int i
    return sum([classes[i].used * classes[i].bytes for i in range(CLASSES)])


def library_bytes():
    """What Python has from the C library."""
    return max(0, counted_library())


def kept_bytes():
    """Of slabs that are empty, and have their pages."""
    return empty_bytes


def idle_bytes():
    """How many of the kept bytes nobody has wanted since this was asked last."""
    global empty_bytes_least
    lock()
    idle, empty_bytes_least = empty_bytes_least, empty_bytes
    unlock()
    return idle


def give_back(uint64_t most):
    """Let the system have the pages of empty slabs, those that were emptied first, up to so many bytes and one slab. It
    lets other threads go on. How many bytes that was.
    """
    cdef uint64_t given = 0, size
    cdef int i
    with nogil:
        for i in range(SLAB_SIZES):
            size = bytes_of_slab(i)
            while given < most and give_slab_back(&parts[i], size):
                given += size
    return given


cdef bint give_slab_back(Part* part, size_t size) noexcept nogil:
    global empty_bytes, empty_bytes_least
    cdef uint32_t number
    lock()
    number = part.empty.last
    if number != NONE:
        take_from(part.slabs, &part.empty, number)
        empty_bytes -= size
        empty_bytes_least = min(empty_bytes_least, empty_bytes)
    unlock()
    if number == NONE:
        return False
    madvise(part.base + <size_t>number * size, size, MADV_DONTNEED)
    lock()
    put_first(part.slabs, &part.gone, number)
    unlock()
    return True
