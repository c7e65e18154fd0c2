<?php
// Slipway's part of a running WordPress: the one-time login, what closes the usual holes,
// and telling the page cache what has changed. It lies beside the core, which is read-only.
namespace Slipway;

defined('ABSPATH') || exit;

// The object cache holds copies alone: transients stay in the database, where they outlive it.
if (isset($GLOBALS['slipway_redis'])) {
	wp_using_ext_object_cache(false);
	add_filter('site_status_should_suggest_persistent_object_cache', '__return_false'); // there is one
}

// One-time login: the link's token is stored as a digest and taken by whoever deletes it.
add_action('init', function () {
	if (!isset($_GET['slipway-login']) || !is_string($_GET['slipway-login'])) {
		return;
	}
	nocache_headers();
	header('Referrer-Policy: no-referrer');
	$user = take_login($_GET['slipway-login']);
	if (!$user) {
		wp_die('This login link has been used or has expired. Create a new one in Slipway.', 'Login link expired', ['response' => 403]);
	}
	wp_set_auth_cookie($user, false);
	wp_safe_redirect(admin_url());
	exit;
}, 0);

const LOGIN = 'slipway_login_';

// The option that a link is stored as. Without the key of its time, which a transfer changes, no link is found.
function login_option(string $digest): string {
	return LOGIN . hash_hmac('sha256', $digest, (string) getenv('SLIPWAY_WP_KEY'));
}

function take_login(string $token): int {
	global $wpdb;
	if (!preg_match('/^[A-Za-z0-9]{20,80}$/', $token)) {
		return 0;
	}
	$name = login_option(hash('sha256', $token));
	$value = $wpdb->get_var($wpdb->prepare("SELECT option_value FROM {$wpdb->options} WHERE option_name = %s", $name));
	if ($value === null || $wpdb->query($wpdb->prepare("DELETE FROM {$wpdb->options} WHERE option_name = %s", $name)) !== 1) {
		return 0; // unknown, or somebody else was first
	}
	[$user, $until] = array_map('intval', explode(' ', $value . ' 0'));
	return $until >= time() && get_userdata($user) ? $user : 0;
}

// A device that a user has logged in from is known by a cookie: whoever tries passwords elsewhere doesn't keep that user out. See guard.DeviceCookie.
add_action('wp_login', function ($login, $user = null) {
	if (headers_sent() || !$user instanceof \WP_User) {
		return;
	}
	$key = hash_hmac('sha256', 'device', (string) getenv('SLIPWAY_WP_KEY'));
	$until = time() + 180 * DAY_IN_SECONDS;
	$text = $until;
	foreach (array_unique([$user->user_login, $user->user_email]) as $name) {
		$text .= '.' . substr(hash_hmac('sha256', 'name ' . strtolower(trim($name)), $key), 0, 32);
	}
	setcookie('known_device', $text . '-' . hash_hmac('sha256', $text, $key), ['expires' => $until, 'path' => '/', 'secure' => true, 'httponly' => true, 'samesite' => 'Lax']);
}, 10, 2);

// Application passwords from before a transfer are those of the sender's people, also once a backup of that time is restored.
if ($moved = (int) getenv('SLIPWAY_WP_MOVED')) {
	add_action('wp_authenticate_application_password_errors', function ($error, $user, $item) use ($moved) {
		if ((int) ($item['created'] ?? 0) <= $moved) {
			$error->add('slipway_transferred', 'This application password is from before the site was transferred. Create a new one.');
		}
	}, 10, 3);
}

// A wrong application password is refused as such, whatever it asks for: what is closed to strangers isn't there for them.
add_filter('rest_authentication_errors', function ($result) {
	if (empty($result) && isset($_SERVER['PHP_AUTH_USER']) && !is_user_logged_in()) {
		return new \WP_Error('incorrect_password', 'The user name or application password is incorrect.', ['status' => 401]);
	}
	return $result;
}, 95);

// Nothing names users to strangers.
add_filter('rest_endpoints', function ($endpoints) {
	if (!is_user_logged_in()) {
		foreach (array_keys($endpoints) as $route) {
			if (strpos($route, '/wp/v2/users') === 0) {
				unset($endpoints[$route]);
			}
		}
	}
	return $endpoints;
});
add_filter('request', function ($vars) {
	if (!is_admin() && isset($_GET['author']) && !is_user_logged_in()) {
		return ['error' => '404'];
	}
	return $vars;
});
add_filter('oembed_response_data', function ($data) {
	unset($data['author_name'], $data['author_url']);
	return $data;
});
add_filter('wp_sitemaps_add_provider', fn($provider, $name) => $name === 'users' ? false : $provider, 10, 2);
add_filter('login_errors', fn() => 'The user name or password is incorrect.');

// Asking for a new password answers the same whoever exists.
add_filter('lostpassword_errors', function ($errors, $user) {
	if (!$user && !wp_doing_ajax()) {
		wp_safe_redirect('wp-login.php?checkemail=confirm');
		exit;
	}
	return $errors;
}, 10, 2);

// The old interface is off unless the owner turns it on.
if (!getenv('SLIPWAY_WP_XMLRPC')) {
	add_filter('xmlrpc_enabled', '__return_false');
	add_filter('xmlrpc_methods', '__return_empty_array');
	add_filter('pings_open', '__return_false', 20);
	remove_action('wp_head', 'rsd_link');
}
add_filter('wp_headers', function ($headers) {
	unset($headers['X-Pingback']);
	return $headers;
});
remove_action('wp_head', 'wp_generator');
add_filter('the_generator', '__return_empty_string');

// Whether a plugin has configured a server of its own: the site's mailer goes before ours. A port has to be opened for it.
function own_mailer($mailer): bool {
	$host = strtolower(trim((string) $mailer->Host));
	$own = $mailer->Mailer === 'smtp' && !in_array($host, ['', 'localhost', '127.0.0.1', '::1'], true);
	if ($own && !in_array((int) $mailer->Port, [80, 443], true)) {
		$GLOBALS['slipway_mail_port'] = (int) $mailer->Port;
	}
	return $own;
}

// Whether a plugin sends by itself: with a wp_mail or a PHPMailer of its own, or by configuring the one that there is.
function mails_itself(): bool {
	global $phpmailer;
	$file = (string) (new \ReflectionFunction('wp_mail'))->getFileName();
	return strpos(wp_normalize_path($file), wp_normalize_path(ABSPATH . WPINC)) !== 0
		|| is_object($phpmailer) && ltrim(get_class($phpmailer), '\\') !== 'PHPMailer\PHPMailer\PHPMailer'
		|| has_action('phpmailer_init');
}

add_action('wp_mail_failed', function ($error) {
	$port = $GLOBALS['slipway_mail_port'] ?? 0;
	error_log('Mail not sent: ' . $error->get_error_message() . ($port ? " (the site's own mail server on port $port: the port must be in run.ports)" : ''));
});

// Mail goes to the operator's server; where there is none it goes nowhere, and the log says so.
if (getenv('SLIPWAY_WP_MAIL')) {
	add_action('phpmailer_init', function ($mailer) {
		if (own_mailer($mailer)) {
			return;
		}
		$mailer->isSMTP();
		$mailer->Host = '127.0.0.1';
		$mailer->Port = (int) getenv('SLIPWAY_WP_MAIL');
		$mailer->SMTPAuth = false;
		$mailer->SMTPSecure = '';
		$mailer->SMTPAutoTLS = false;
	}, PHP_INT_MAX);
	add_filter('wp_mail_from', fn($from) => filter_var($from, FILTER_VALIDATE_EMAIL) ? $from : 'wordpress@example.invalid'); // localhost is no domain
} else {
	add_filter('pre_wp_mail', function ($sent, $mail) {
		if ($sent !== null || mails_itself()) {
			return $sent;
		}
		$to = is_array($mail['to']) ? implode(', ', $mail['to']) : (string) $mail['to'];
		error_log('Mail not sent: this server has no mail server for sites. To: ' . preg_replace('/[^\x20-\x7e]/', '?', $to));
		return false;
	}, PHP_INT_MAX, 2);
}

// A clone is no production: what it would send or charge for the site that it was made of waits. The owner's WP_ENVIRONMENT_TYPE decides.
if (getenv('SLIPWAY_WP_CLONE') && wp_get_environment_type() !== 'production') {
	add_filter('pre_wp_mail', function ($sent, $mail) {
		$to = is_array($mail['to']) ? implode(', ', $mail['to']) : (string) $mail['to'];
		error_log('Mail held, because this site is a clone: "' . preg_replace('/[^\x20-\x7e]/', '?', (string) ($mail['subject'] ?? '')) . '" to ' . preg_replace('/[^\x20-\x7e]/', '?', $to));
		return true;
	}, PHP_INT_MAX, 2);
	add_filter('action_scheduler_queue_runner_concurrent_batches', fn() => 0, PHP_INT_MAX); // of shops and newsletters
	add_filter('woocommerce_subscriptions_is_duplicate_site', '__return_true', PHP_INT_MAX);
	add_filter('slipway_pauses', fn($no, $hook) => (bool) preg_match(HELD_EVENTS, (string) $hook), 0, 2);
}

// Events that would charge or mail customers of the site that a clone was made of.
const HELD_EVENTS = '/^(action_scheduler_|woocommerce_scheduled_subscription|woocommerce_(deliver_webhook|send_queued_transactional_email)|wcs_|mailpoet|newsletter|tnp_|'
	. 'mailster|fluentcrm|mc4wp|sendpress|wysija|edd_(recurring|weekly|daily)_scheduled|memberpress|mepr_|pmpro_cron_|rcp_|automatewoo)/';

// Uploads are as large as the owner's setting says.
add_filter('upload_size_limit', fn($size) => min($size, max(1, (int) getenv('SLIPWAY_WP_UPLOAD')) << 20));
function bound_upload($file) {
	$most = max(1, (int) getenv('SLIPWAY_WP_UPLOAD')) << 20;
	if (max((int) ($file['size'] ?? 0), (int) @filesize($file['tmp_name'] ?? '')) > $most) {
		$file['error'] = sprintf('The file is larger than %d MB.', $most >> 20);
	}
	return $file;
}
add_filter('wp_handle_upload_prefilter', __NAMESPACE__ . '\bound_upload');
// The same of a body that is a file: REST stores it as one that is there already, XML-RPC as text.
add_filter('wp_handle_sideload_prefilter', fn($file) => defined('REST_REQUEST') && REST_REQUEST ? bound_upload($file) : $file);
add_filter('wp_upload_bits', function ($upload) {
	$most = max(1, (int) getenv('SLIPWAY_WP_UPLOAD')) << 20;
	return is_array($upload) && defined('XMLRPC_REQUEST') && strlen($upload['bits'] ?? '') > $most ? sprintf('The file is larger than %d MB.', $most >> 20) : $upload;
});

// A database from before the core, as a restore of it alone brings, is made the core's: upgrade.php,
// to which WordPress would lead every administrator, is nobody's to call.
add_action('init', function () {
	if (is_admin() && !wp_doing_ajax() && (int) get_option('db_version') < (int) $GLOBALS['wp_db_version'] && is_blog_installed()) {
		require_once ABSPATH . 'wp-admin/includes/upgrade.php';
		wp_upgrade();
		changed('*');
	}
}, 0);

// Slipway runs scheduled events: it hears of a new one, which may be before all others.
add_action('update_option_cron', function ($old, $new) {
	$times = array_filter(array_keys(is_array($new) ? $new : []), 'is_int');
	if ($times && !wp_doing_cron()) {
		tell('Cron', (string) min($times));
	}
}, 10, 2);

// Domains of a network's sites keep the port of an installation that has one.
if (getenv('SLIPWAY_WP_NETWORK') && ($port = parse_url((string) getenv('SLIPWAY_WP_URL'), PHP_URL_PORT))) {
	add_filter('wp_normalize_site_data', function ($data) use ($port) {
		if (isset($data['domain'])) {
			$data['domain'] = preg_replace('/(?<=[a-z])' . $port . '$/', ':' . $port, $data['domain']);
		}
		return $data;
	}, 20);
}

// Addresses without index.php work, as with Apache's mod_rewrite: Settings > Permalinks would propose /index.php/%postname%/.
add_filter('got_url_rewrite', '__return_true');

// Updates of the core come from Slipway.
add_filter('user_has_cap', function ($caps) {
	unset($caps['update_core']);
	return $caps;
});
add_filter('site_status_tests', function ($tests) {
	unset($tests['async']['background_updates'], $tests['direct']['background_updates']);
	return $tests;
});

// Requests of the site to itself show for a minute that they are, whatever closes the site to others: its password, and wp-cron.php, by
// which Site Health sees that it reaches itself. See guard.Served.Vouches.
add_filter('http_request_args', function ($args, $url) {
	if (is_array($args['headers'] ?? []) && strpos((string) $url, getenv('SLIPWAY_WP_URL') . '/') === 0) {
		$mark = hash_hmac('sha256', 'loopback', (string) getenv('SLIPWAY_WP_KEY'));
		$args['headers']['Slipway-Loopback'] = time() . '.' . hash_hmac('sha256', (string) time(), $mark);
	}
	return $args;
}, 10, 2);

// Slipway itself sees the site also in maintenance: whether it answers at all, and whether an
// update has broken it. Of everybody else's requests, those of programs of this server too, the edge says where they came from.
function asked_by_slipway(): bool {
	return !isset($_SERVER['HTTP_X_REAL_IP']) && strpos($_SERVER['HTTP_USER_AGENT'] ?? '', 'Slipway-') === 0;
}

if (getenv('SLIPWAY_WP_MAINTENANCE')) {
	add_action('template_redirect', function () {
		if (!is_user_logged_in() && !asked_by_slipway()) {
			header('Retry-After: 600');
			wp_die('This site is being worked on. Please come back later.', 'Maintenance', ['response' => 503]);
		}
	}, 0);
}

// Tells Slipway something by a header of the answer. A request of the site to itself tells it at the end, if output had begun or a plugin
// removed the header. See guard.told.
function tell(string $name, string $value): void {
	static $values = [], $late = false;
	if (!$values) {
		register_shutdown_function(function () use (&$values, &$late) {
			$missing = array_filter($values, fn($value, $name) => $late || !in_array("X-Slipway-$name: $value", headers_list(), true), ARRAY_FILTER_USE_BOTH);
			if ($missing) {
				$headers = ['Slipway-Told' => '1'];
				foreach ($missing as $name => $value) {
					$headers["X-Slipway-$name"] = $value;
				}
				wp_remote_post(getenv('SLIPWAY_WP_URL') . '/', ['headers' => $headers, 'timeout' => 5, 'redirection' => 0, 'sslverify' => apply_filters('https_local_ssl_verify', false)]);
			}
		});
	}
	$values[$name] = $value;
	if (headers_sent()) {
		$late = true;
	} else {
		header("X-Slipway-$name: $value");
	}
}

// The page cache: which answers may be stored, and what changes make old ones stale.
function changed(string ...$paths): void {
	static $all = [];
	foreach ($paths as $path) {
		$all[$path] = true;
	}
	tell('Purge', isset($all['*']) || count($all) > 50 ? '*' : implode(' ', array_keys($all)));
}

function path_of($url): string {
	$path = is_string($url) ? wp_parse_url($url, PHP_URL_PATH) : null;
	return $path ?: '/';
}

// The statuses of posts that no page shows.
const UNSEEN = ['new', 'auto-draft', 'draft', 'pending', 'future', 'trash'];

// A post's own pages change with it, and the lists that may hold it.
function changed_post($id): void {
	$post = get_post($id);
	if (!$post || wp_is_post_revision($post) || wp_is_post_autosave($post) || $post->post_type === 'nav_menu_item') {
		return;
	}
	// What is no page's yet, or no longer: the transition of its status has told of that.
	if (in_array($post->post_status, UNSEEN, true)) {
		return;
	}
	changed('*');
}

foreach (['save_post', 'deleted_post', 'trashed_post', 'untrashed_post', 'clean_post_cache'] as $hook) {
	add_action($hook, __NAMESPACE__ . '\changed_post');
}
add_action('transition_post_status', function ($new, $old, $post) {
	if (!wp_is_post_revision($post) && array_diff([$new, $old], UNSEEN)) { // plugins have statuses of their own
		changed('*');
	}
}, 10, 3);
foreach (['comment_post', 'edit_comment', 'deleted_comment', 'transition_comment_status'] as $hook) {
	add_action($hook, function () { changed('*'); });
}
foreach (['switch_theme', 'customize_save_after', 'wp_update_nav_menu', 'created_term', 'edited_term', 'delete_term', 'activated_plugin', 'deactivated_plugin', 'upgrader_process_complete', 'profile_update'] as $hook) {
	add_action($hook, function () { changed('*'); });
}
add_action('updated_option', function ($name) {
	if (strpos($name, 'theme_mods_') === 0 || strpos($name, 'widget') === 0 || in_array($name, ['blogname', 'blogdescription', 'permalink_structure', 'show_on_front', 'page_on_front', 'page_for_posts', 'posts_per_page', 'sidebars_widgets', 'stylesheet', 'template', 'date_format', 'time_format', 'WPLANG', 'site_icon'], true)) {
		changed('*');
	}
});
// Plugins may say it themselves: do_action('slipway_purge', ['/shop/']).
add_action('slipway_purge', function ($paths = ['*']) { changed(...array_map('strval', (array) $paths)); });

// Whether the page is made for the visitor's kind of device: a theme asks WordPress, Jetpack, or a library.
function asks_device(): bool {
	return !empty($GLOBALS['slipway_device']) || class_exists('Mobile_Detect', false) || class_exists('Detection\MobileDetect', false);
}
foreach (['wp_is_mobile', 'jetpack_is_mobile_filter'] as $hook) {
	add_filter($hook, function ($mobile) { $GLOBALS['slipway_device'] = true; return $mobile; }, 0);
}

// Whether a page may be stored is known at its end: a plugin may define DONOTCACHEPAGE in its footer. A page that is too large to be stored,
// or whose output a plugin sends before, is none.
add_action('template_redirect', function () {
	if (is_user_logged_in() || is_search() || is_preview() || is_customize_preview() || post_password_required()) {
		return;
	}
	ob_start(function ($html, $phase) {
		if (($phase & PHP_OUTPUT_HANDLER_START) && ($phase & PHP_OUTPUT_HANDLER_FINAL) && did_action('shutdown')
			&& !headers_sent() && !(defined('DONOTCACHEPAGE') && DONOTCACHEPAGE)) {
			header('X-Slipway-Cache: page' . (asks_device() ? ' device' : ''));
		}
		return false; // as it is
	}, 2 << 20);
}, 0);

// Files of themes and plugins whose address names a version are kept by browsers for a year. The version changes with the file.
function versioned($src) {
	$base = getenv('SLIPWAY_WP_URL') . '/';
	if (!is_string($src) || strpos($src, $base) !== 0 || !preg_match('/^([^?#]+)\?ver=([^&#]+)$/', substr($src, strlen($base)), $m)) {
		return $src;
	}
	$file = ABSPATH . rawurldecode($m[1]);
	if (strpos($m[1], '..') !== false || !is_file($file)) {
		return $src;
	}
	return $src . '-' . base_convert((string) crc32(filemtime($file) . ' ' . filesize($file)), 10, 36);
}
foreach (['style_loader_src', 'script_loader_src', 'script_module_loader_src'] as $hook) {
	add_filter($hook, __NAMESPACE__ . '\versioned', PHP_INT_MAX);
}
