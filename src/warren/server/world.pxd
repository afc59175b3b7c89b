# compiled: on the path of every turn
