<?php
// Stores the digest of a one-time login.
require __DIR__ . '/boot.php';
wordpress();
$user = get_user_by('login', $in['user']);
if (!$user || !user_can($user, 'manage_options')) { // renamed or gone: the oldest administrator
	$admins = get_users(['role' => 'administrator', 'orderby' => 'ID', 'number' => 1]);
	$user = $admins[0] ?? null;
}
if (!$user) {
	answer(['error' => 'This WordPress has no administrator'], 409);
}
global $wpdb;
// Those that were never used go.
foreach ($wpdb->get_results("SELECT option_name, option_value FROM {$wpdb->options} WHERE option_name LIKE 'slipway\\_login\\_%'") as $row) {
	if ((int) (explode(' ', $row->option_value)[1] ?? 0) < time()) {
		$wpdb->delete($wpdb->options, ['option_name' => $row->option_name]);
	}
}
$wpdb->insert($wpdb->options, ['option_name' => Slipway\login_option($in['digest']), 'option_value' => $user->ID . ' ' . (time() + $in['seconds']), 'autoload' => 'no']);
answer(['user' => $user->user_login]);
