<?php
// Who can log in, those with the most rights first.
require __DIR__ . '/boot.php';
wordpress();
$list = [];
foreach (get_users(['number' => 500, 'orderby' => 'ID']) as $u) {
	$list[] = ['id' => (int) $u->ID, 'login' => $u->user_login, 'email' => $u->user_email, 'name' => $u->display_name, 'roles' => array_values($u->roles), 'registered' => strtotime($u->user_registered . ' UTC') ?: 0];
}
usort($list, fn($a, $b) => [!in_array('administrator', $a['roles'], true), $a['id']] <=> [!in_array('administrator', $b['roles'], true), $b['id']]);
answer(['users' => $list, 'total' => (int) count_users()['total_users']]);
