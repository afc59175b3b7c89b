# compiled: on the path of every round
