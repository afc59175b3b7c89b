from libc.stdint cimport uint8_t

from warren.pipeline.segments.columns cimport Column


cdef struct Headers:
    Column maps          # a cell for each message: how many names and values its map has
    Column names         # of all headers
    Column values        # their texts
    Column type_maps     # a cell for each message, for `type_names` and `types`
    Column type_names    # names of the headers that need a type
    Column types         # their types


cdef struct Deaths:
    Column lists         # a cell for each message: how many deaths it has; the others have a cell for each death
    Column counts
    Column exchanges
    Column queues
    Column reasons
    Column key_lists     # how many routing keys a death has
    Column keys          # a cell for each routing key
    Column times
    Column expirations


cdef int start_headers(Headers* headers) except -1 nogil
cdef void drop_headers(Headers* headers) noexcept nogil
cdef int append_headers(Headers* headers, const uint8_t* p, const uint8_t* end) except -1 nogil
cdef int append_no_headers(Headers* headers) except -1 nogil
cdef object take_headers(Headers* headers)

cdef int start_deaths(Deaths* deaths) except -1 nogil
cdef void drop_deaths(Deaths* deaths) noexcept nogil
cdef int append_deaths(Deaths* deaths, const uint8_t* p, const uint8_t* end) except -1 nogil
cdef int append_no_deaths(Deaths* deaths) except -1 nogil
cdef object take_deaths(Deaths* deaths)
