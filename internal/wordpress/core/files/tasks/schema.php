<?php
// What tables consist of: a digest of each column, with its type.
require __DIR__ . '/boot.php';
define('WP_INSTALLING', true); // no plugin runs
wordpress();
global $wpdb;
$rows = $wpdb->get_col($wpdb->prepare("SELECT CONCAT_WS('\\0', table_name, column_name, column_type) FROM information_schema.columns
	WHERE table_schema = DATABASE() AND table_name LIKE %s ORDER BY 1 LIMIT %d", $wpdb->esc_like($wpdb->prefix) . '%', (int) $in['most'] + 1));
answer(['columns' => array_map(fn($row) => substr(md5($row), 0, 10), $rows)]);
