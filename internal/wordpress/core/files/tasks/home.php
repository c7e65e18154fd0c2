<?php
// Under which address the site's program knows it.
require __DIR__ . '/boot.php';
answer(['home' => (string) getenv('SLIPWAY_WP_URL'), 'network' => (string) getenv('SLIPWAY_WP_NETWORK')]);
