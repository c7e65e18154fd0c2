package wordpress

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Replacing text in a serialized value must give the same as replacing it in the value and then serializing that,
// whatever the value contains. Input that is not serialized must be treated as text.
func TestSerializedValuesStayWhole(t *testing.T) {
	t.Parallel()
	php, err := exec.LookPath("php")
	if err != nil {
		t.Fatal("PHP is needed: apt-get install php-cli")
	}
	lib, err := filepath.Abs("../core/files/tasks/serialized.php")
	if err != nil {
		t.Fatal(err)
	}
	script := `require $argv[1]; error_reporting(E_ALL);
class Known { public $a; protected $b; private $c; public function __construct($x, $y, $z) { $this->a = $x; $this->b = $y; $this->c = $z; } public function same($f) { $n = new Known(0, 0, 0); foreach (['a','b','c'] as $k) $n->$k = $f($this->$k); return $n; } }
enum Suit: string { case Old = 'old.test'; }
mt_srand(7);
$pairs = [['https://old.test', 'https://a-much-longer-address.example'], ['ö', 'oe']]; $swap = texts($pairs);
function swap($v) { global $pairs;
  if (is_string($v)) { $u = @unserialize($v, ['allowed_classes' => false]); if ($u !== false && preg_match('/^[aOs]:/', $v)) return serialize(swap(unserialize($v))); foreach ($pairs as [$a, $b]) $v = str_replace($a, $b, $v); return $v; }
  if (is_array($v)) { $o = []; foreach ($v as $k => $x) $o[$k] = swap($x); return $o; }
  if ($v instanceof Known) return $v->same('swap');
  return $v; }
function any($deep) { switch (mt_rand(0, $deep > 4 ? 6 : 9)) {
  case 0: return mt_rand(-9, 9); case 1: return mt_rand() / 7; case 2: return null; case 3: return (bool) mt_rand(0, 1);
  case 4: return 'see https://old.test/p?q="x";} and ö'; case 5: return str_repeat("\0;\"}", mt_rand(0, 3)) . 'https://old.test'; case 6: return Suit::Old;
  case 7: $o = []; for ($i = mt_rand(0, 4); $i > 0; $i--) $o[mt_rand(0, 1) ? 'https://old.test key ' . $i : $i] = any($deep + 1); return $o;
  case 8: return new Known(any($deep + 1), any($deep + 2), any($deep + 3)); default: return serialize(any($deep + 1)); } }
$bad = 0;
for ($i = 0; $i < 3000; $i++) { $v = [any(0), any(0)]; $n = 0; $got = replaced(serialize($v), $swap, $n); $want = serialize(swap($v)); if ($got !== $want) { if ($bad++ < 3) echo "of ", serialize($v), "\n got $got\n want $want\n"; } }
$n = 0;
foreach (['a:1:{s:3:"https://old.test";}' => 'a:1:{s:3:"https://a-much-longer-address.example";}', 'https://old.test' => 'https://a-much-longer-address.example', 's:99:"x";' => 's:99:"x";', 'a:99999999:{' => 'a:99999999:{', str_repeat('a:1:{i:0;', 5000) => str_repeat('a:1:{i:0;', 5000)] as $in => $want)
  if (replaced($in, $swap, $n) !== $want) echo "text $in became ", replaced($in, $swap, $n), "\n";
echo $bad ? "$bad differ" : 'same';`
	out, err := exec.Command(php, "-d", "memory_limit=512M", "-r", script, lib).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "same" {
		t.Errorf("%v: %.3000s", err, out)
	}
}
