<?php
// The files of wp-content: how many there are, their names, or digests of what they have. WordPress isn't loaded: no plugin takes part.
require __DIR__ . '/boot.php';
require __DIR__ . '/tree.php';
answer(tree(core() . 'wp-content', $in));
