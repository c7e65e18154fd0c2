<?php
// What there is: versions of the core, plugins and themes, what has an update, and how much content.
require __DIR__ . '/boot.php';
require __DIR__ . '/content.php';
wordpress();
require_once ABSPATH . 'wp-admin/includes/plugin.php';
require_once ABSPATH . 'wp-admin/includes/update.php';
if (!empty($in['refresh'])) {
	wp_update_plugins();
	wp_update_themes();
}
$updates = get_site_transient('update_plugins');
$auto = (array) get_site_option('auto_update_plugins', []);
$plugins = [];
foreach (get_plugins() as $file => $p) {
	$plugins[] = ['slug' => strpos($file, '/') ? dirname($file) : basename($file, '.php'), 'file' => $file, 'name' => $p['Name'], 'version' => $p['Version'], 'active' => is_plugin_active($file),
		'updateVersion' => $updates->response[$file]->new_version ?? null, 'autoUpdate' => in_array($file, $auto, true)];
}
$updates = get_site_transient('update_themes');
$auto = (array) get_site_option('auto_update_themes', []);
$themes = [];
foreach (wp_get_themes() as $slug => $t) {
	$themes[] = ['slug' => $slug, 'name' => $t->get('Name'), 'version' => $t->get('Version'), 'active' => $slug === get_stylesheet(), 'updateVersion' => $updates->response[$slug]['new_version'] ?? null, 'autoUpdate' => in_array($slug, $auto, true)];
}
$cache = null; // of objects
if (getenv('SLIPWAY_REDIS')) {
	$cache = ['shared' => getenv('SLIPWAY_REDIS_PREFIX') !== false, 'own' => file_exists(WP_CONTENT_DIR . '/object-cache.php'), 'paused' => class_exists('Slipway\Redis') && \Slipway\Redis::paused(), 'figures' => isset($GLOBALS['slipway_redis']) ? ($GLOBALS['wp_object_cache']->figures() ?: null) : null];
}
answer(['objectCache' => $cache, 'version' => $GLOBALS['wp_version'], 'phpVersion' => PHP_VERSION, 'managed' => defined('DISALLOW_FILE_MODS') && DISALLOW_FILE_MODS, 'title' => get_bloginfo('name'), 'locale' => get_locale(), 'adminUrl' => admin_url(), 'public' => (int) get_option('blog_public'),
	'admins' => array_map(fn($u) => $u->user_login, get_users(['role' => 'administrator', 'orderby' => 'ID', 'number' => 20, 'fields' => ['ID', 'user_login']])),
	'content' => empty($in['content']) ? null : content((int) ($in['since'] ?? 0), !empty($in['compare'])),
	'plugins' => array_slice($plugins, 0, 500), 'themes' => array_slice($themes, 0, 200)]);
