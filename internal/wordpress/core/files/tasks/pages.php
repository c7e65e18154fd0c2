<?php
// A set of addresses by which the site is checked: the front page, lists, and what was
// published last of each type.
require __DIR__ . '/boot.php';
wordpress();
$pages = ['/' => true];
foreach (get_post_types(['public' => true]) as $type) {
	if ($type === 'attachment') {
		continue;
	}
	foreach (get_posts(['post_type' => $type, 'numberposts' => 3, 'post_status' => 'publish', 'has_password' => false]) as $post) {
		$path = wp_parse_url(get_permalink($post), PHP_URL_PATH);
		$query = wp_parse_url(get_permalink($post), PHP_URL_QUERY);
		$pages[($path ?: '/') . ($query ? '?' . $query : '')] = true;
	}
}
foreach (get_terms(['taxonomy' => 'category', 'number' => 2, 'hide_empty' => true]) ?: [] as $term) {
	if ($term instanceof WP_Term) {
		$pages[wp_parse_url(get_term_link($term), PHP_URL_PATH) ?: '/'] = true;
	}
}
$pages['/wp-login.php'] = true;
$pages['/feed/'] = true;
answer(['pages' => array_slice(array_map('strval', array_keys($pages)), 0, 12)]);
