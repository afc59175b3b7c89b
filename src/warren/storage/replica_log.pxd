# compiled: on the path of every batch
