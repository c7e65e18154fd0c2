<?php
// Updates plugins and themes to the newest version that their source offers. What it could
// not update it tells; who asked has a backup. Where one that is named is not installed it
// updates nothing.
require __DIR__ . '/boot.php';
wordpress();
foreach (['file', 'misc', 'plugin', 'theme', 'update', 'class-wp-upgrader'] as $part) {
	require_once ABSPATH . "wp-admin/includes/$part.php";
}
wp_update_plugins();
wp_update_themes();
$updated = [];
$failed = [];
$minor = fn(string $from, string $to) => implode('.', array_slice(explode('.', $from . '.0'), 0, 2)) === implode('.', array_slice(explode('.', $to . '.0'), 0, 2));
$note = function (string $kind, array $wanted, array $results) use (&$updated, &$failed) {
	foreach ($wanted as $id => $x) {
		$r = $results[$id] ?? null;
		if (is_wp_error($r) || !$r) {
			$failed[] = $x + ['kind' => $kind, 'error' => is_wp_error($r) ? $r->get_error_message() : 'it could not be downloaded or unpacked'];
		} else {
			$updated[] = $x + ['kind' => $kind];
		}
	}
};
$choose = function ($want, array $all, array $auto) use ($minor) {
	$out = [];
	foreach ($all as $id => $x) { // those that are updated by themselves get any version
		$itself = in_array((string) $id, $auto, true) && ($want === 'minor' || $want === 'auto');
		if ($want === 'all' || $itself || $want === 'minor' && $minor($x['from'], $x['to']) || is_array($want) && in_array($x['slug'], $want, true)) {
			$out[$id] = $x;
		}
	}
	return $out;
};

$offers = get_site_transient('update_plugins')->response ?? [];
$all = [];
$installed = ['plugin' => [], 'theme' => array_map('strval', array_keys(wp_get_themes()))];
foreach (get_plugins() as $file => $p) {
	$installed['plugin'][] = $slug = strpos($file, '/') ? dirname($file) : basename($file, '.php');
	if (isset($offers[$file])) {
		$all[$file] = ['slug' => $slug, 'from' => $p['Version'], 'to' => (string) $offers[$file]->new_version];
	}
}
$missing = [];
foreach ($installed as $kind => $slugs) {
	$want = $in[$kind . 's'] ?? [];
	foreach (is_array($want) ? array_diff($want, $slugs) : [] as $slug) {
		$missing[] = ['kind' => $kind, 'slug' => $slug];
	}
}
if ($missing) {
	answer(['updated' => [], 'failed' => [], 'missing' => $missing]);
}
$plugins = $choose($in['plugins'] ?? [], $all, (array) get_site_option('auto_update_plugins', []));
$offers = get_site_transient('update_themes')->response ?? [];
$all = [];
foreach (wp_get_themes() as $slug => $t) {
	if (isset($offers[$slug])) {
		$all[$slug] = ['slug' => $slug, 'from' => (string) $t->get('Version'), 'to' => (string) $offers[$slug]['new_version']];
	}
}
$themes = $choose($in['themes'] ?? [], $all, (array) get_site_option('auto_update_themes', []));
if (!empty($in['look'])) {
	answer(['updated' => array_values(array_merge($plugins, $themes)), 'failed' => []]);
}
if ($plugins) {
	$note('plugin', $plugins, (new Plugin_Upgrader(new Automatic_Upgrader_Skin()))->bulk_upgrade(array_keys($plugins)) ?: []);
}
if ($themes) {
	$note('theme', $themes, (new Theme_Upgrader(new Automatic_Upgrader_Skin()))->bulk_upgrade(array_keys($themes)) ?: []);
}
header('X-Slipway-Purge: *');
answer(['updated' => $updated, 'failed' => $failed]);
