<?php
// The sites of a network (multisite): lists them, makes a WordPress a network, or gives them other addresses. It reads tables alone, so it
// works whether or not the program knows that it is a network.
require __DIR__ . '/boot.php';
define('WP_INSTALLING', true); // no plugin runs
wordpress();
global $wpdb;
$wpdb->suppress_errors();

if (!empty($in['create'])) {
	require_once ABSPATH . 'wp-admin/includes/upgrade.php';
	$admins = get_users(['role' => 'administrator', 'orderby' => 'ID', 'number' => 1]);
	if (!$admins) {
		answer(['error' => 'This WordPress has no administrator'], 409);
	}
	wp_set_current_user($admins[0]->ID);
	foreach ($wpdb->tables('ms_global') as $table => $name) {
		$wpdb->$table = $name;
	}
	foreach ($wpdb->tables('global', false) as $table) {
		$wpdb->$table = $wpdb->base_prefix . $table;
	}
	$wpdb->query("UPDATE {$wpdb->options} SET option_value = " . $wpdb->prepare('%s', 'https://' . $in['domain']) . " WHERE option_name IN ('home', 'siteurl')");
	install_network();
	$kept = array_map('get_option', ['permalink_structure' => 'permalink_structure', 'category_base' => 'category_base', 'tag_base' => 'tag_base']);
	$done = populate_network(1, $in['domain'], $admins[0]->user_email, get_option('blogname'), '/', $in['create'] === 'subdomain');
	if (is_wp_error($done) && $done->get_error_code() !== 'no_wildcard_dns') { // its sites have domains of their own
		answer(['error' => wp_strip_all_tags($done->get_error_message())], 409);
	}
	foreach ($kept as $name => $value) { // a network would put /blog before every post
		update_option($name, $value);
	}
	delete_option('rewrite_rules');
	wp_cache_flush();
}
$blogs = network_blogs((int) $in['most'] + 1);
foreach ($in['blogs'] ?? [] as $b) {
	$wpdb->query($wpdb->prepare("UPDATE {$wpdb->base_prefix}blogs SET domain = %s, path = %s WHERE blog_id = %d", $b['domain'], $b['path'], $b['id']));
	if ((int) $b['id'] === 1) {
		$wpdb->query($wpdb->prepare("UPDATE {$wpdb->base_prefix}site SET domain = %s, path = '/' WHERE id = 1", $b['domain']));
	}
	$table = $wpdb->base_prefix . ((int) $b['id'] === 1 ? '' : (int) $b['id'] . '_') . 'options';
	$wpdb->query("DELETE FROM {$table} WHERE option_name = 'rewrite_rules'");
	if (isset($in['public'])) {
		$wpdb->query($wpdb->prepare("UPDATE {$table} SET option_value = %d WHERE option_name = 'blog_public'", (int) $in['public']));
	}
}
if (!empty($in['blogs'])) {
	wp_cache_flush();
	header('X-Slipway-Purge: *');
}
answer(['network' => network_kind(), 'blogs' => $blogs]);
