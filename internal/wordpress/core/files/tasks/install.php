<?php
// Installs WordPress where it is not installed yet. Twice does no harm: what the first run
// began is begun anew, what it finished is left alone.
require __DIR__ . '/boot.php';
define('WP_INSTALLING', true);
define('SLIPWAY_INSTALLING', true); // languages may be downloaded whatever the site may
function wp_new_blog_notification() {} // pluggable: nobody is mailed a password

// An installation that was cut off leaves some of the tables, with which WordPress does not even
// load: they go before. One that was finished says so in the last thing that it writes.
function clear_half(): void {
	mysqli_report(MYSQLI_REPORT_OFF);
	$db = mysqli_init();
	if (!@$db->real_connect('localhost', getenv('SLIPWAY_WP_DATABASE_USER'), getenv('SLIPWAY_WP_DATABASE_PASSWORD'), getenv('SLIPWAY_WP_DATABASE'), 0, getenv('SLIPWAY_WP_DATABASE_SOCKET'))) {
		return; // WordPress says why
	}
	$prefix = getenv('SLIPWAY_WP_PREFIX') ?: 'wp_';
	$done = $db->query("SELECT option_value FROM `{$prefix}options` WHERE option_name = 'slipway_installed'");
	if ($done && $done->num_rows > 0) {
		return;
	}
	$tables = $db->query("SHOW TABLES LIKE '" . addcslashes($prefix, '_%\\') . "%'");
	foreach ($tables ? $tables->fetch_all() : [] as [$table]) {
		$db->query('DROP TABLE IF EXISTS `' . str_replace('`', '``', $table) . '`');
	}
	$db->close();
}

if (empty($in['installed'])) {
	clear_half();
}
wordpress();
require ABSPATH . 'wp-admin/includes/upgrade.php';
require ABSPATH . 'wp-admin/includes/translation-install.php';

// Languages that came with the core lie beside it.
function shipped_language(string $locale): void {
	$from = dirname(core()) . '/slipway/languages';
	$to = WP_CONTENT_DIR . '/languages';
	$files = array_merge(glob("$from/$locale.*") ?: [], glob("$from/$locale-*.json") ?: []);
	foreach (['admin', 'admin-network', 'continents-cities'] as $part) {
		$files = array_merge($files, glob("$from/$part-$locale.*") ?: []);
	}
	if ($files && (is_dir($to) || mkdir($to, 0755, true))) {
		foreach ($files as $file) {
			copy($file, $to . '/' . basename($file));
		}
	}
}

add_filter('pre_http_request', fn($pre, $args, $url) => strpos($url, home_url()) === 0 ? new WP_Error('blocked', 'no request to itself during the installation') : $pre, 10, 3);

if (is_blog_installed() && (!empty($in['installed']) || get_option('slipway_installed'))) {
	$old = (int) get_option('db_version');
	if ($old !== (int) $GLOBALS['wp_db_version']) { // the core is another one
		wp_upgrade();
	}
	answer(['installed' => false, 'version' => $GLOBALS['wp_version'], 'upgraded' => $old !== (int) $GLOBALS['wp_db_version']]);
}
wp_cache_flush();
$locale = 'en_US';
$warning = '';
if ($in['locale'] !== 'en_US') {
	shipped_language($in['locale']);
	if (in_array($in['locale'], get_available_languages(), true)) {
		$locale = $in['locale'];
	} elseif (($got = wp_can_install_language_pack() ? wp_download_language_pack($in['locale']) : false)) {
		$locale = $got;
	} else {
		$warning = 'The language ' . $in['locale'] . ' could not be downloaded, so WordPress is in English';
	}
	if ($locale !== 'en_US') {
		load_default_textdomain($locale);
		$GLOBALS['wp_locale'] = new WP_Locale();
	}
}
// The password is nobody's: the owner logs in by a link, and may set one there.
$made = wp_install($in['title'], $in['user'], $in['email'], true, '', wp_generate_password(40, true, true), $locale === 'en_US' ? '' : $locale);
// The name in addresses is not the one to log in with.
wp_update_user(['ID' => $made['user_id'], 'user_nicename' => 'author-' . substr(hash('sha256', wp_generate_password(20)), 0, 6), 'display_name' => $in['title']]);
update_option('permalink_structure', '/%postname%/');
update_option('blog_public', 1);
update_option('default_ping_status', 'closed');
update_option('uploads_use_yearmonth_folders', 1);
// The first theme of the repository that works, or one that came with the core.
$own = $refused = $fallback = '';
foreach (array_merge(['twentytwentythree'], array_keys(wp_get_themes())) as $theme) {
	if ($fallback === '' && !in_array((string) $theme, $in['themes'], true) && wp_get_theme($theme)->exists() && !wp_get_theme($theme)->errors()) {
		$fallback = (string) $theme;
	}
}
foreach ($in['themes'] as $theme) {
	$errors = wp_get_theme($theme)->errors();
	if (!$errors && function_exists('validate_theme_requirements') && is_wp_error($needs = validate_theme_requirements($theme))) {
		$errors = $needs;
	}
	if (!$errors) {
		$own = $theme;
		break;
	}
	$refused = $refused ?: wp_strip_all_tags($errors->get_error_message());
}
if ($own !== '' || $fallback !== '') {
	switch_theme($own !== '' ? $own : $fallback);
}
flush_rewrite_rules(false);
update_option('slipway_installed', time(), false); // last: it says that all of it was done
answer([
	'installed' => true, 'version' => $GLOBALS['wp_version'], 'locale' => $locale, 'warning' => $warning,
	'theme' => $own, 'fallback' => $fallback, 'refused' => $own === '' ? $refused : '',
]);
