# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""An allocator for what is too large for Python's arenas, above all the bodies of messages, and for the objects
`Message` and `Entry`.

The C library keeps freed memory that lies between memory in use. Making it give that back to the system locks it for
as long as that takes: half a second after a burst of 5 GB. Here freed memory goes back a slab at a time, from a thread
of its own, while nobody waits for it. Used memory is counted, so that the memory alarm need not guess.

    space     one reservation of addresses, in parts of 256 GiB, one part for each size of slab
    slab      memory for objects of one class: at least 8 objects, or a single one if it is large
    class     a size of objects, at most 1/8 larger than the class before, so that 1/16 is lost on average

    A slab's life:   in use  ->  empty  ->  given back  ->  in use
                                 an empty slab keeps its pages for the next burst, until no empty slab
                                 was needed for a second or two

An object comes from the first slab of its class that has room. Python serves most requests of up to 512 bytes from its
arenas; those that still come here, and those beyond 16 MiB, go to the C library, which maps each large one separately.

Threads ask for raw memory without the interpreter's lock, too, so slabs are under a lock of our own. `Message` and
`Entry` are only made and freed under the interpreter's lock, and need ours only when one of their slabs begins or ends.

`warren perf throughput --consumers 0` watches the speed of this, `benchmarks/memory.py` what it keeps.
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
    PYTHON_BYTES_MAX = 512          # requests up to this size Python serves from its arenas
    BYTES_MAX = 16 * 1024 * 1024    # larger requests go to the C library
    EXPONENT_MIN = 9                # classes begin above 2 ** 9 bytes
    STEPS = 8                       # classes for each doubling of the size
    CLASSES = 15 * STEPS            # for 512 bytes up to 16 MiB
    OBJECT_CLASSES = 4              # further classes, one for each type that is adopted
    SLAB_BITS_MIN = 16              # the smallest slab: 64 KiB
    SLAB_SIZES = 9                  # 64 KiB to 16 MiB
    PART_BITS = 38                  # addresses for slabs of one size: 256 GiB
    OBJECTS_MIN = 8
    SHARED_BITS_MAX = 19            # an object above 512 KiB has a slab of its own
    NONE = 0                        # no slab: they are numbered from 1 on

cdef struct Slab:
    void* freed         # the first of a chain of freed objects; each begins with a pointer to the next
    uint32_t used       # how many objects are in use
    uint32_t made       # how many were ever handed out since the slab is in use; what lies behind them is untouched
    uint32_t before     # the slab's neighbours in the list that it is in
    uint32_t behind
    uint32_t kind       # the number of its class

cdef struct SlabList:
    uint32_t first
    uint32_t last
    uint32_t count

cdef struct Class:
    uint32_t bytes      # the size of an object
    uint32_t objects    # how many fit into a slab
    uint32_t size       # the size of its slabs: 64 KiB << size
    uint64_t used       # how many objects are in use, in all slabs
    SlabList partial    # slabs in use that have room

cdef struct Part:
    uint8_t* base       # where the part's addresses begin
    Slab* slabs         # what is known of each slab, by number
    uint32_t made       # how many slabs were ever in use
    SlabList empty      # empty slabs that have their pages
    SlabList gone       # those whose pages were given back

cdef uint8_t* space = NULL
cdef size_t space_bytes = 0
cdef Part parts[SLAB_SIZES]
cdef Class classes[CLASSES + OBJECT_CLASSES]
cdef int object_classes = 0           # how many types were adopted
cdef uint64_t slab_bytes_used = 0     # in slabs that have objects
cdef uint64_t empty_bytes = 0         # in empty slabs that have their pages
cdef uint64_t empty_bytes_least = 0   # the lowest value of `empty_bytes` since `idle_bytes` was last called


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
    """Take an empty slab into use for a class, and return its number; NONE if there are no addresses left."""
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
    """The class with the smallest objects that hold so many bytes."""
    cdef int exponent = log2_of(size - 1)
    return (exponent - EXPONENT_MIN) * STEPS + (((size - 1) >> (exponent - 3)) & (STEPS - 1))


cdef inline void* take_object(Class* kind, uint32_t number) noexcept nogil:
    """Take an object from slab `number`, which has room."""
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
    """The class of an object of ours; sets `number` and `slab` to the slab that it is in."""
    cdef size_t at = <uintptr_t>p - <uintptr_t>space
    cdef uint32_t size = <uint32_t>(at >> PART_BITS)
    number[0] = <uint32_t>((at & ((<size_t>1 << PART_BITS) - 1)) >> (SLAB_BITS_MIN + size))
    slab[0] = &parts[size].slabs[number[0]]
    return &classes[slab[0].kind]


cdef inline bint give_object(Class* kind, Slab* slab, uint32_t number, void* p) noexcept nogil:
    """Take an object back into its slab. Returns whether that is empty now."""
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
    """Make an object larger or smaller (`realloc`)."""
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
    """Make an object of an adopted type, zeros but for its head. Called under the interpreter's lock."""
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
        PyObject_Free(p)  # it was made before its type was adopted
        return
    kind = class_at(p, &number, &slab)
    if give_object(kind, slab, number, p):
        lock()
        end_slab(kind, number)
        unlock()


cdef PyTypeObject* object_types[OBJECT_CLASSES]


def adopt(type kind):
    """From now on objects of this type are made here. It is meant for a type of which there may be millions of objects;
    the garbage collector must not track them.
    """
    global object_classes
    assert object_classes < OBJECT_CLASSES, "OBJECT_CLASSES allows for one more type"
    cdef PyTypeObject* c_type = <PyTypeObject*>kind
    assert not is_collected(c_type), "the garbage collector keeps a header before each object"
    cdef Class* new = &classes[CLASSES + object_classes]
    new.bytes = (c_type.tp_basicsize + 15) & ~15
    new.size = 0
    new.objects = <uint32_t>(bytes_of_slab(0) // new.bytes)
    object_types[object_classes] = c_type
    object_classes += 1
    adopt_type(c_type, <void*>make_object, <void*>free_object)


# --- the whole ---


cdef bint reserve() noexcept:
    """Reserve addresses for all slabs and for the array of `Slab`s. They take no memory before they are touched. Pages
    are small ones: the kernel would fill a huge page again of which we have given back most.
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
    """Whether Python takes its large objects directly from the C library. A debugger of memory between them, as with
    `python -X dev`, or a tracer would be handed objects that it has not made.
    """
    cdef PyMemAllocatorEx raw, small
    PyMem_GetAllocator(PYMEM_DOMAIN_RAW, &raw)
    PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &small)
    return raw.ctx == NULL and small.malloc != raw.malloc


def install(*types):
    """From now on this process takes its memory from here, and makes objects of these types here. It is for a process
    that is all broker, not for a program that embeds one. Returns False if it cannot be done: the address space is
    limited, memory is traced or debugged, or the C library is not glibc.
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
    """Bytes of slabs in use, with the room in them that is free or lost."""
    return slab_bytes_used


def object_bytes():
    """Bytes of objects of the adopted types."""
    cdef int i
    return sum([classes[CLASSES + i].used * classes[CLASSES + i].bytes for i in range(object_classes)])


def large_bytes():
    """Bytes of all other objects here."""
    cdef int i
    return sum([classes[i].used * classes[i].bytes for i in range(CLASSES)])


def library_bytes():
    """Bytes that Python has from the C library."""
    return max(0, counted_library())


def kept_bytes():
    """Bytes of empty slabs that have their pages."""
    return empty_bytes


def idle_bytes():
    """How many of the kept bytes were not needed at any time since the last call."""
    global empty_bytes_least
    lock()
    idle, empty_bytes_least = empty_bytes_least, empty_bytes
    unlock()
    return idle


def give_back(uint64_t most):
    """Give the pages of empty slabs back to the system, longest empty first, until there were `most` bytes: at most one
    slab more. Other threads go on meanwhile. Returns how many bytes were given back.
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
