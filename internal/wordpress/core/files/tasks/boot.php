<?php
// What tasks of Slipway's have in common. They lie outside of the document root: nobody but
// Slipway itself can run them. What they are asked for comes as JSON, and so does the answer.
error_reporting(E_ALL & ~E_DEPRECATED & ~E_WARNING & ~E_NOTICE & ~E_USER_DEPRECATED);
set_time_limit(0);
ignore_user_abort(true);
$in = json_decode(file_get_contents('php://input'), true) ?: [];
ob_start(); // what plugins print is no answer

function answer(array $out, int $status = 200): void {
	while (ob_get_level() > 0) {
		ob_end_clean();
	}
	http_response_code($status);
	header('Content-Type: application/json');
	echo json_encode($out, JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES);
	exit;
}

register_shutdown_function(function () {
	$e = error_get_last();
	if ($e && in_array($e['type'], [E_ERROR, E_PARSE, E_CORE_ERROR, E_COMPILE_ERROR, E_USER_ERROR, E_RECOVERABLE_ERROR], true) && !headers_sent()) {
		answer(['error' => $e['message'] . ' in ' . $e['file'] . ':' . $e['line']], 500);
	}
});

function core(): string { return dirname(__DIR__, 2) . '/public/'; }

// The sites of a network, none where it isn't one.
function network_blogs(int $most): array {
	global $wpdb;
	$table = $wpdb->base_prefix . 'blogs';
	if (!$wpdb->get_var($wpdb->prepare('SHOW TABLES LIKE %s', $wpdb->esc_like($table)))) {
		return [];
	}
	$rows = $wpdb->get_results($wpdb->prepare("SELECT blog_id, domain, path FROM {$table} WHERE site_id = 1 ORDER BY blog_id LIMIT %d", $most));
	return array_map(fn($b) => ['id' => (int) $b->blog_id, 'domain' => (string) $b->domain, 'path' => (string) $b->path], $rows ?: []);
}

function network_kind(): string {
	global $wpdb;
	if (!network_blogs(1)) {
		return '';
	}
	return $wpdb->get_var("SELECT meta_value FROM {$wpdb->base_prefix}sitemeta WHERE site_id = 1 AND meta_key = 'subdomain_install'") ? 'subdomain' : 'subfolder';
}

function wordpress(): void {
	global $in;
	if (getenv('SLIPWAY_WP_NETWORK')) { // which of its sites it is
		$_SERVER['HTTP_HOST'] = $in['blog']['domain'] ?? substr((string) getenv('SLIPWAY_WP_URL'), strlen('https://'));
		$path = $in['blog']['path'] ?? '/';
	}
	// Fatal errors of plugins are the task's to tell, and nobody is mailed.
	define('WP_SANDBOX_SCRAPING', true);
	$_SERVER['REQUEST_URI'] = $path ?? '/';
	$_SERVER['REQUEST_METHOD'] = 'GET';
	$_SERVER['SCRIPT_NAME'] = $_SERVER['PHP_SELF'] = '/index.php';
	require core() . 'wp-load.php';
	set_time_limit(0); // wp-config.php bounds visitors
}
