<?php
// Slipway's configuration of WordPress, the same for every site. What is a site's own comes
// from the environment of its PHP, so this file holds no secret and is never written.
define('DB_NAME', getenv('SLIPWAY_WP_DATABASE'));
define('DB_USER', getenv('SLIPWAY_WP_DATABASE_USER'));
define('DB_PASSWORD', getenv('SLIPWAY_WP_DATABASE_PASSWORD'));
define('DB_HOST', 'localhost:' . getenv('SLIPWAY_WP_DATABASE_SOCKET'));
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
$table_prefix = getenv('SLIPWAY_WP_PREFIX') ?: 'wp_';

foreach (['AUTH_KEY', 'SECURE_AUTH_KEY', 'LOGGED_IN_KEY', 'NONCE_KEY', 'AUTH_SALT', 'SECURE_AUTH_SALT', 'LOGGED_IN_SALT', 'NONCE_SALT'] as $name) {
	define($name, hash_hmac('sha512', $name, getenv('SLIPWAY_WP_KEY')));
}
unset($name);

define('WP_HOME', getenv('SLIPWAY_WP_URL'));
define('WP_SITEURL', getenv('SLIPWAY_WP_URL'));
if ($network = getenv('SLIPWAY_WP_NETWORK')) { // the addresses of its sites are in the database
	define('WP_ALLOW_MULTISITE', true);
	define('MULTISITE', true);
	define('SUBDOMAIN_INSTALL', $network === 'subdomain');
	define('DOMAIN_CURRENT_SITE', substr(WP_HOME, strlen('https://')));
	define('PATH_CURRENT_SITE', '/');
	define('SITE_ID_CURRENT_SITE', 1);
	define('BLOG_ID_CURRENT_SITE', 1);
	define('COOKIE_DOMAIN', false);         // each domain has cookies of its own
	// Between a change of the domain and the rewriting of the database, the sites are found by the former one.
	$GLOBALS['wp_filter']['pre_get_site_by_path'][0]['slipway'] = [
		'function' => static function ($site, $domain, $path, $segments = null) {
			if ($site !== null || $domain !== DOMAIN_CURRENT_SITE || !($main = get_site(BLOG_ID_CURRENT_SITE)) || $main->domain === $domain) {
				return $site;
			}
			$former = $main->domain;
			foreach (['option_home', 'option_siteurl'] as $name) {
				add_filter($name, static fn($url) => is_string($url) ? str_replace("//$former", '//' . DOMAIN_CURRENT_SITE, $url) : $url);
			}
			return get_site_by_path($former, $path, $segments);
		},
		'accepted_args' => 4,
	];
	// A host of no site leads to the first one. NOBLOGREDIRECT would also redirect pages that the first one lacks.
	$GLOBALS['wp_filter']['ms_site_not_found'][0]['slipway'] = [
		'function' => static function ($network, $domain) {
			if ($domain !== DOMAIN_CURRENT_SITE) {
				header('Location: ' . WP_HOME . '/', true, 302);
				exit;
			}
		},
		'accepted_args' => 2,
	];
}
unset($network);
define('FORCE_SSL_ADMIN', true);
define('DISABLE_WP_CRON', true);            // Slipway runs it
define('AUTOMATIC_UPDATER_DISABLED', true); // Slipway updates: the core is read-only
define('WP_AUTO_UPDATE_CORE', false);
define('DISALLOW_FILE_EDIT', true);
if (getenv('SLIPWAY_WP_MANAGED') && !defined('SLIPWAY_INSTALLING')) {
	define('DISALLOW_FILE_MODS', true);     // themes and plugins come from the repository
}
define('WP_MEMORY_LIMIT', ((int) getenv('SLIPWAY_WP_MEMORY') ?: 256) . 'M');
define('WP_MAX_MEMORY_LIMIT', WP_MEMORY_LIMIT);
@ini_set('memory_limit', WP_MEMORY_LIMIT);
set_time_limit((int) getenv('SLIPWAY_WP_SECONDS') ?: 60);
define('FS_METHOD', 'direct');
define('WP_TEMP_DIR', '/tmp');
define('WP_DEBUG', (bool) getenv('SLIPWAY_WP_DEBUG'));
define('WP_DEBUG_DISPLAY', false);
define('WP_DEBUG_LOG', false);              // PHP's own log is the site's
define('WP_DEFAULT_THEME', getenv('SLIPWAY_WP_THEME') ?: 'twentytwentythree');

// The owner's constants are variables of the site: WP_CONFIG_EMPTY_TRASH_DAYS=7. They don't replace ours.
foreach (getenv() as $name => $value) {
	if (preg_match('/^WP_CONFIG_((?!SLIPWAY_)[A-Z][A-Z0-9_]{0,63})$/', $name, $m) && !defined($m[1]) && $m[1] !== 'ABSPATH') {
		$number = preg_match('/^(0|-?[1-9][0-9]{0,17})$/', $value);
		define($m[1], ['true' => true, 'false' => false][strtolower($value)] ?? ($number ? (int) $value : $value));
	}
}
unset($name, $value, $m, $number);

if (!defined('ABSPATH')) {
	define('ABSPATH', __DIR__ . '/');
}
// Loaded before any plugin, from outside of what the site may write.
$GLOBALS['wp_filter']['muplugins_loaded'][0]['slipway'] = [
	'function' => static function () { require_once dirname(__DIR__) . '/slipway/plugin.php'; },
	'accepted_args' => 0,
];
// The object cache, where the owner has turned it on and a Redis runs beside PHP.
if (getenv('SLIPWAY_REDIS')) {
	$GLOBALS['wp_filter']['enable_loading_object_cache_dropin'][0]['slipway'] = [
		'function' => static function ($enable) { require_once dirname(__DIR__) . '/slipway/redis.php'; return \Slipway\use_object_cache() ? false : $enable; },
		'accepted_args' => 1,
	];
}
require_once ABSPATH . 'wp-settings.php';
