<?php
// Activates, deactivates and deletes plugins and themes, and says which are updated by themselves.
// Where one that is named is not installed, or can't be changed so, nothing is.
require __DIR__ . '/boot.php';
if (!empty($in['safe'])) {
	define('WP_INSTALLING', true); // no plugin and no theme is loaded: one of them ends every request
}
wordpress();
foreach (['file', 'misc', 'plugin', 'theme'] as $part) {
	require_once ABSPATH . "wp-admin/includes/$part.php";
}
$refuse = fn(string $slug, string $why) => answer(['done' => [], 'refused' => [['slug' => $slug, 'error' => $why]]]);
$action = (string) $in['action'];
if ($action === 'delete' && defined('DISALLOW_FILE_MODS') && DISALLOW_FILE_MODS) {
	answer(['error' => 'Plugins and themes of this site come from its repository: remove them there'], 409);
}
$plugins = $in['kind'] === 'plugin';
$files = []; // of slugs to what WordPress calls them
foreach ($plugins ? array_keys(get_plugins()) : array_keys(wp_get_themes()) as $file) {
	$file = (string) $file;
	$slug = !$plugins ? $file : (strpos($file, '/') ? dirname($file) : basename($file, '.php'));
	$files[$slug] = $files[$slug] ?? $file;
}
$chosen = [];
foreach ($in['slugs'] as $slug) {
	if (!isset($files[$slug])) {
		$refuse($slug, 'it is not installed');
	}
	$chosen[$slug] = $files[$slug];
	if ($action !== 'delete') {
		continue;
	}
	if ($plugins && is_plugin_active($files[$slug])) {
		$refuse($slug, 'it is active; deactivate it first');
	}
	if (!$plugins && in_array($slug, [get_stylesheet(), get_template()], true)) {
		$refuse($slug, 'it is the active theme, or its parent; activate another one first');
	}
}
$done = [];
$previous = get_stylesheet();
foreach ($chosen as $slug => $file) {
	$slug = (string) $slug;
	$result = null;
	switch ($action) {
	case 'activate':
		if ($plugins) {
			if (is_plugin_active($file)) {
				continue 2;
			}
			$result = activate_plugin($file);
		} else {
			$theme = wp_get_theme($slug);
			$result = $theme->errors() ?: (function_exists('validate_theme_requirements') ? validate_theme_requirements($slug) : null);
			if (get_stylesheet() === $slug) {
				continue 2;
			}
			if (!is_wp_error($result)) {
				switch_theme($slug);
			}
		}
		break;
	case 'deactivate':
		if (!is_plugin_active($file)) {
			continue 2;
		}
		deactivate_plugins([$file]);
		break;
	case 'delete':
		$result = $plugins ? delete_plugins([$file]) : delete_theme($slug);
		$result = $result ?: new WP_Error('delete', 'its files could not be deleted');
		break;
	case 'enable_auto_update':
	case 'disable_auto_update':
		$name = $plugins ? 'auto_update_plugins' : 'auto_update_themes';
		$old = array_values(array_filter((array) get_site_option($name, []), 'is_string'));
		$new = array_values(array_diff($old, [$file]));
		if ($action === 'enable_auto_update') {
			$new[] = $file;
		}
		if (count($old) === count($new)) {
			continue 2;
		}
		update_site_option($name, $new);
		break;
	default:
		answer(['error' => 'Unknown action'], 400);
	}
	if (is_wp_error($result)) {
		answer(['done' => $done, 'previous' => $previous, 'refused' => [['slug' => $slug, 'error' => wp_strip_all_tags($result->get_error_message())]]]);
	}
	$done[] = $slug;
}
if (strpos($action, 'auto_update') === false && $done) {
	header('X-Slipway-Purge: *');
}
answer(['done' => $done, 'previous' => $previous, 'refused' => []]);
