<?php
// Creates a user, changes the role of one, or mails one the link by which they set a password.
// What is so already is not an error: who asked may ask again after a crash.
require __DIR__ . '/boot.php';
wordpress();
require_once ABSPATH . 'wp-admin/includes/user.php';
$refuse = fn(string $why) => answer(['error' => $why], 409);
$told = fn(string $login, bool $mailed = true) => answer(['login' => $login, 'mailed' => $mailed]);
$failed = false; // mail
add_action('wp_mail_failed', function () use (&$failed) { $failed = true; });
if (!getenv('SLIPWAY_WP_MAIL')) {
	$failed = true;
}
if (isset($in['role']) && !isset(wp_roles()->roles[$in['role']])) {
	$refuse('The role ' . $in['role'] . ' does not exist. Roles of this site: ' . implode(', ', array_keys(wp_roles()->roles)));
}
if ($in['action'] === 'create') {
	$same = get_user_by('login', $in['login']);
	if ($same && strcasecmp($same->user_email, $in['email']) === 0 && in_array($in['role'], $same->roles, true)) {
		$told($same->user_login, !$failed);
	}
	if ($same) {
		$refuse('The username is taken');
	}
	if (email_exists($in['email'])) {
		$refuse('The email address belongs to another user');
	}
	$id = wp_insert_user(['user_login' => $in['login'], 'user_email' => $in['email'], 'display_name' => $in['login'], 'user_pass' => wp_generate_password(40, true, true), 'role' => $in['role']]);
	if (is_wp_error($id)) {
		$refuse(wp_strip_all_tags($id->get_error_message()));
	}
	wp_new_user_notification($id, null, 'user'); // with the link to set a password
	$told($in['login'], !$failed);
}
$user = get_userdata($in['id']);
if (!$user) {
	$refuse('The user does not exist any more');
}
if ($in['action'] === 'role') {
	$admin = in_array('administrator', $user->roles, true);
	if ($admin && $in['role'] !== 'administrator' && count(get_users(['role' => 'administrator', 'fields' => 'ID', 'number' => 2])) < 2) {
		$refuse($user->user_login . ' is the only administrator. Make somebody else an administrator first');
	}
	if ($user->roles !== [$in['role']]) {
		$user->set_role($in['role']);
	}
	$told($user->user_login);
}
$result = retrieve_password($user->user_login);
if (is_wp_error($result)) {
	$refuse(getenv('SLIPWAY_WP_MAIL') ? wp_strip_all_tags($result->get_error_message()) : 'This server sends no mail for sites');
}
$told($user->user_login, !$failed);
