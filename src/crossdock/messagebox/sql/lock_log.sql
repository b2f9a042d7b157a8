-- Alone with a closed log: whoever began to write to it before the swap has finished.
LOCK TABLE {log} IN ACCESS EXCLUSIVE MODE;
