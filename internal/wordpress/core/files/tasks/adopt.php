<?php
// Makes a database that came from another site this site's own: what belonged to the other
// one goes.
require __DIR__ . '/boot.php';
define('WP_INSTALLING', true); // no plugin runs
wordpress();
require ABSPATH . 'wp-admin/includes/upgrade.php';
global $wpdb;
if (!is_blog_installed()) {
	answer(['error' => 'The database holds no WordPress with the table prefix ' . $wpdb->prefix], 409);
}
$from = [];
foreach (['home', 'siteurl'] as $name) {
	$value = untrailingslashit((string) $wpdb->get_var($wpdb->prepare("SELECT option_value FROM {$wpdb->options} WHERE option_name = %s", $name)));
	if (preg_match('~^https?://[^\s/]+~', $value)) {
		$from[$value] = true;
	}
}
$wpdb->query("DELETE FROM {$wpdb->options} WHERE option_name LIKE 'slipway\\_login\\_%' OR option_name = 'slipway_replace' OR option_name LIKE '\\_transient\\_%' OR option_name LIKE '\\_site\\_transient\\_%'");
$wpdb->query("DELETE FROM {$wpdb->usermeta} WHERE meta_key = 'session_tokens'");
$wpdb->query($wpdb->prepare("INSERT INTO {$wpdb->options} (option_name, option_value, autoload) VALUES ('slipway_installed', %s, 'no') ON DUPLICATE KEY UPDATE option_value = option_value", time()));
if (isset($in['public'])) { // whether search engines may have it is the target's, not the source's
	update_option('blog_public', (int) $in['public']);
}
if ((int) get_option('db_version') !== (int) $GLOBALS['wp_db_version']) {
	wp_upgrade();
}
if (strpos((string) get_option('upload_path'), '/') === 0) {
	update_option('upload_path', ''); // a folder of another server
}
delete_option('rewrite_rules'); // made again by a request that has plugins
foreach (array_slice(network_blogs(501), 1) as $b) {
	$wpdb->query("DELETE FROM {$wpdb->base_prefix}" . (int) $b['id'] . "_options WHERE option_name LIKE '\\_transient\\_%' OR option_name LIKE 'slipway\\_login\\_%'");
}
$admins = $wpdb->get_col($wpdb->prepare("SELECT user_id FROM {$wpdb->usermeta} WHERE meta_key = %s AND meta_value LIKE %s ORDER BY user_id LIMIT 1", $wpdb->prefix . 'capabilities', '%"administrator"%'));
$user = $admins ? get_userdata((int) $admins[0]) : null;
wp_cache_flush();
header('X-Slipway-Purge: *');
answer(['addresses' => array_keys($from), 'admin' => $user ? $user->user_login : '', 'title' => (string) get_option('blogname'), 'network' => network_kind(), 'blogs' => network_blogs(501)]);
