from libc.stdint cimport uint8_t

from warren.pipeline.segments.columns cimport Column


cdef struct Headers:
    Column maps
    Column names
    Column values
    Column type_maps
    Column type_names
    Column types


cdef struct Deaths:
    Column lists
    Column counts
    Column exchanges
    Column queues
    Column reasons
    Column key_lists
    Column keys
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
