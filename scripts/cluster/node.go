package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inside is the argument of the first process in the cluster's namespaces; the other is that of the second node's.
const (
	inside  = "inside"
	inside2 = "inside2"
)

// host is a node of the cluster.
type host struct {
	name    string
	address string // in its own network, which isn't connected to others
	pods    string // range of its pods' addresses
	more    string // additional settings of kubelet
}

// The second node is for tests that lose one. It accepts no pods until a test allows it.
var (
	first  = host{"n1", "10.99.0.2", "10.244.0.0/24", ""}
	second = host{"n2", "10.99.1.2", "10.244.1.0/24", "registerWithTaints: [{key: slipway.dev/second, effect: NoSchedule}]\n"}
)

// between is the first node's address in the network of the two nodes.
const between = "10.99.1.1"

// node is the first process in its namespaces. It starts a cluster there and runs the tests. Everything that it starts
// ends with it.
func node(dir string, args []string) int {
	kept, only, bench := args[0], args[1], args[2]
	n := &starting{host: first, dir: dir, kept: kept, log: filepath.Join(dir, "log")}
	if err := n.start(); err != nil {
		fmt.Println("cluster:", err)
		n.tell()
		return 1
	}
	other := ""
	if wanted, err := regexp.MatchString(only, testOfNodes); wanted && err == nil {
		if other, err = n.addSecond(); err != nil {
			fmt.Println("cluster: the second node:", err)
			return 1
		}
	}
	source, err := os.Getwd()
	if err != nil {
		fmt.Println("cluster:", err)
		return 1
	}
	// Pods write to it; on a machine with little memory, tests would detect that.
	c := exec.Command(filepath.Join(dir, "cluster.test"), "-test.v", "-test.run", only, "-test.timeout=60m", "-test.bench", bench, "-test.benchtime=50x")
	php, _ := phpVersion()
	c.Env = append(os.Environ(),
		"SLIPWAY_CLUSTER_PHP="+php,
		"KUBECONFIG="+filepath.Join(dir, "admin.kubeconfig"),
		"SLIPWAY_CLUSTER_ADDRESS="+first.address,
		"SLIPWAY_CLUSTER_SECOND="+other,
		"SLIPWAY_CLUSTER_IMAGE="+runtimeImage,
		"SLIPWAY_CLUSTER_BUILD_IMAGE="+buildImage,
		"SLIPWAY_CLUSTER_NODE="+nodeVersion(),
		"SLIPWAY_CLUSTER_BUILT="+dir,
		"SLIPWAY_CLUSTER_SOURCE="+source,
	)
	if os.Getenv(ofChart) != "" {
		if err := n.chartTest(c); err != nil {
			fmt.Println("cluster:", err)
			return 1
		}
	}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		fmt.Println("cluster:", err)
		n.tell()
		return 1
	}
	return 0
}

// testOfNodes is the test that needs two nodes.
const testOfNodes = "TestNodes"

// addSecond starts a second node in its own namespaces below this one's. It returns the pid of the node's first
// process; killing that process is like a power failure of the node.
func (n *starting) addSecond() (pid string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	leave, err := enterGroups("second")
	if err != nil {
		leave()
		return "", err
	}
	c := exec.Command(self, inside2, n.dir, n.kept)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWCGROUP |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := c.Start(); err != nil {
		return "", err
	}
	for _, group := range controllers { // moves this process back; the node's stay
		if err := os.WriteFile("/sys/fs/cgroup/"+group+"/cgroup.procs", []byte("0"), 0o644); err != nil {
			return "", err
		}
	}
	go func() { _ = c.Wait() }()
	pid = strconv.Itoa(c.Process.Pid)
	for _, line := range []string{
		"link add second type veth peer name eth0 netns " + pid, "addr add " + between + "/24 dev second", "link set second up",
		"route add " + second.pods + " via " + second.address + " src " + first.address,
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("ip %s: %s", line, out)
		}
	}
	return pid, nil
}

// node2 is the first process in the second node's namespaces.
func node2(dir, kept string) int {
	n := &starting{host: second, dir: filepath.Join(dir, second.name), kept: kept, log: filepath.Join(dir, "log", second.name)}
	if err := n.join(dir); err != nil {
		fmt.Println("cluster: the second node:", err)
		return 1
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, shortOfMemory)
	for short := true; ; short = !short { // until the first one exits
		<-signals
		if err := n.memory(dir, short); err != nil {
			fmt.Println("cluster: the second node:", err)
		}
	}
}

// shortOfMemory is the signal that toggles memory pressure on the second node.
const shortOfMemory = syscall.SIGUSR1

// memory restarts the node's kubelet, which then always or never reports memory pressure.
func (n *starting) memory(shared string, short bool) error {
	settings := n.settings()["kubelet.yaml"]
	if short { // not evictionHard, which would admit no pods again
		settings += "evictionSoft: {memory.available: \"99.9%\"}\nevictionSoftGracePeriod: {memory.available: 1s}\n"
	}
	if err := n.write(map[string]string{"kubelet.yaml": settings}); err != nil {
		return err
	}
	if err := n.agent.Process.Kill(); err != nil {
		return err
	}
	_ = n.agent.Wait()
	return n.kubelet(shared)
}

// starting is a node that is being started.
type starting struct {
	host
	dir, kept, log string

	agent *exec.Cmd // its kubelet
}

// join starts the second node. shared is the first node's folder with files for all nodes.
func (n *starting) join(shared string) error {
	if err := n.mounts(); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	err := until("the way to the first node", func() bool { _, err := net.InterfaceByName("eth0"); return err == nil })
	if err == nil {
		err = n.addresses("link set lo up", "addr add "+n.address+"/24 dev eth0", "link set eth0 up", "route add default via "+between+" dev eth0")
	}
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if err := n.write(n.settings()); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return errors.Join(n.daemon("containerd", "-c", filepath.Join(n.dir, "containerd.toml")), n.images(shared), n.kubelet(shared))
}

func (n *starting) tell() {
	for _, name := range append([]string{"containerd"}, components...) {
		tail(filepath.Join(n.log, name+".log"))
		tail(filepath.Join(n.log, second.name, name+".log"))
	}
}

func (n *starting) start() error {
	if err := n.mounts(); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	err := n.addresses("link set lo up", "link add eth0 type veth peer name eth0p", "link set eth0p up",
		"addr add "+n.address+"/24 dev eth0", "link set eth0 up", "route add default via 10.99.0.1 dev eth0")
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	cluster, err := n.clusterSettings()
	if err == nil {
		err = errors.Join(n.write(cluster), n.write(n.settings()))
	}
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if err := n.serveRegistry(); err != nil {
		return fmt.Errorf("npm registry: %w", err)
	}
	return n.daemons()
}

// mounts gives the node its own /sys and cgroups, and replaces the kernel settings that kubelet requires by files,
// because they are the machine's.
func (n *starting) mounts() error {
	type mount struct{ source, target, kind, data string }
	all := []mount{{"sysfs", "/sys", "sysfs", ""}, {"tmpfs", "/sys/fs/cgroup", "tmpfs", ""}}
	for _, c := range controllers {
		data := c
		if c == "systemd" {
			data = "none,name=systemd"
		}
		all = append(all, mount{"cgroup", "/sys/fs/cgroup/" + c, "cgroup", data})
	}
	all = append(all, mount{"tmpfs", "/var/log", "tmpfs", ""}, mount{"tmpfs", "/run", "tmpfs", ""}, mount{"proc", "/proc", "proc", ""})
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), os.MkdirAll(n.dir, 0o755)); err != nil {
		return err
	}
	for _, m := range all {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("%s: %w", m.target, err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil { // so that containers see kubelet's volumes
		return err
	}
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		file := filepath.Join(n.dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	names := filepath.Join(n.dir, "resolv.conf")
	return errors.Join(os.MkdirAll("/run/lock", 0o755), os.MkdirAll(n.log, 0o755), unix.Sethostname([]byte(n.name)),
		os.WriteFile(names, []byte("nameserver "+first.address+"\n"), 0o644), unix.Mount(names, "/etc/resolv.conf", "", unix.MS_BIND, ""))
}

func (n *starting) addresses(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %s", line, out)
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// clusterSettings returns the files for the whole cluster.
func (n *starting) clusterSettings() (files map[string]string, err error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	config := func(token string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x",
"clusters":[{"name":"c","cluster":{"server":"https://%s:6443","insecure-skip-tls-verify":true}}],
"users":[{"name":"u","user":{"token":"%s"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}]}`, first.address, token)
	}
	admin := rand.Text()
	files = map[string]string{
		"sa.key": string(secret), "tokens.csv": admin + ",admin,admin,system:masters\n", "admin.kubeconfig": config(admin),
	}
	for _, h := range []host{first, second} {
		token := rand.Text()
		files["tokens.csv"] += token + ",system:node:" + h.name + "," + h.name + ",system:nodes\n"
		files["kubelet-"+h.name+".kubeconfig"] = config(token)
	}
	return files, nil
}

// settings returns the files for this node.
func (n *starting) settings() map[string]string {
	return map[string]string{
		// One link per pod instead of a bridge, so that traffic between pods passes the node's rules.
		"cni/10-ptp.conflist": `{"cniVersion":"0.4.0","name":"k8s","plugins":[{"type":"ptp","ipMasq":false,"ipam":{"type":"host-local",
"dataDir":"` + n.dir + `/ipam","ranges":[[{"subnet":"` + n.pods + `"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`,
		"containerd.toml": strings.NewReplacer("DIR", n.dir, "KEPT", n.kept).Replace(containerdConfig),
		"kubelet.yaml":    strings.NewReplacer("DIR", n.dir, "FIRST", first.address).Replace(kubeletConfig) + n.more,
	}
}

// write writes the daemons' files.
func (n *starting) write(files map[string]string) error {
	for name, text := range files {
		file := filepath.Join(n.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

const containerdConfig = `version = 2
root = "DIR/containerd"
state = "DIR/containerd-state"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "DIR/containerd.sock"
[plugins]
  [plugins."io.containerd.internal.v1.opt"]
    path = "DIR/opt"
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "localhost/pause:1"
    restrict_oom_score_adj = true
    disable_apparmor = true
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "DIR/cni"
    [plugins."io.containerd.grpc.v1.cri".containerd]
      snapshotter = "overlayfs"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
          BinaryName = "KEPT/deb/usr/sbin/runc"
          Root = "DIR/runc"
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://DIR/containerd.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
resolvConf: ""
clusterDNS: [FIRST]
clusterDomain: cluster.local
podLogsDir: DIR/podlogs
volumePluginDir: DIR/volumeplugins
oomScoreAdj: 0
maxOpenFiles: 20000
failSwapOn: false
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: 2s
evictionPressureTransitionPeriod: 5s
evictionHard: {memory.available: "50Mi", nodefs.available: "1%", imagefs.available: "1%"}
imageMinimumGCAge: 1000h
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
shutdownGracePeriod: 0s
featureGates: {KubeletInUserNamespace: true}
`

// daemon is launch without the process.
func (n *starting) daemon(name string, args ...string) error {
	_, err := n.launch(name, args...)
	return err
}

// launch starts a program of the cluster. Its output is appended to a file.
func (n *starting) launch(name string, args ...string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(n.log, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	file := filepath.Join(n.kept, "bin", name)
	if name == "containerd" {
		file = filepath.Join(n.kept, "deb/usr/bin/containerd")
	}
	c := exec.Command(file, args...)
	c.Env = append(os.Environ(), "PATH="+filepath.Join(n.kept, "deb/usr/bin")+":"+filepath.Join(n.kept, "deb/usr/sbin")+
		":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c, c.Start()
}

// startPatience is how long a daemon may take to start on a busy machine.
const startPatience = 3 * time.Minute

func until(what string, ready func() bool) error {
	for late := time.Now().Add(startPatience); !ready(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(late) {
			return fmt.Errorf("%s is not there after %v", what, startPatience)
		}
	}
	return nil
}

func listens(at string) func() bool {
	return func() bool {
		c, err := net.DialTimeout("tcp", at, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
}

func (n *starting) daemons() error {
	in := func(name string) string { return filepath.Join(n.dir, name) }
	const etcd = "http://127.0.0.1:2379"
	err := errors.Join(
		n.daemon("containerd", "-c", in("containerd.toml")),
		n.daemon("etcd", "--data-dir", in("etcd"), "--unsafe-no-fsync", "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
			"--listen-peer-urls", "http://127.0.0.1:2380"),
		until("etcd", listens("127.0.0.1:2379")),
		n.daemon("kube-apiserver", "--etcd-servers="+etcd, "--secure-port=6443", "--bind-address=0.0.0.0", "--advertise-address="+n.address,
			"--cert-dir="+in("pki"), "--token-auth-file="+in("tokens.csv"), "--authorization-mode=Node,RBAC",
			"--service-account-issuer=https://slipway.test", "--service-account-key-file="+in("sa.key"),
			"--service-account-signing-key-file="+in("sa.key"), "--service-cluster-ip-range=10.96.0.0/16",
			"--kubelet-preferred-address-types=InternalIP", "--profiling=false"),
		until("the API server", listens(n.address+":6443")),
	)
	if err != nil {
		return err
	}
	if err := n.images(n.dir); err != nil {
		return err
	}
	return errors.Join(
		n.daemon("kube-controller-manager", "--kubeconfig="+in("admin.kubeconfig"), "--leader-elect=false",
			"--service-account-private-key-file="+in("sa.key"), "--root-ca-file="+in("pki/apiserver.crt"), "--cert-dir="+in("pki")),
		n.daemon("kube-scheduler", "--kubeconfig="+in("admin.kubeconfig"), "--leader-elect=false", "--cert-dir="+in("pki")),
		n.kubelet(n.dir),
	)
}

func (n *starting) kubelet(shared string) (err error) {
	in := func(name string) string { return filepath.Join(n.dir, name) }
	n.agent, err = n.launch("kubelet",
		"--config="+in("kubelet.yaml"), "--kubeconfig="+filepath.Join(shared, "kubelet-"+n.name+".kubeconfig"), "--hostname-override="+n.name,
		"--node-ip="+n.address, "--root-dir="+in("kubelet"), "--cert-dir="+in("kubelet-pki"))
	return err
}

// images imports the images of the node's pods.
func (n *starting) images(shared string) error {
	ctr := filepath.Join(n.kept, "deb/usr/bin/ctr")
	images := []string{"pause", "runtime", "build"}
	if os.Getenv(ofChart) != "" { // the chart's test imports its own
		images = images[:1]
	}
	for _, image := range images {
		var out []byte
		var err error
		err = until("the image "+image, func() bool {
			out, err = exec.Command(ctr, "-a", filepath.Join(n.dir, "containerd.sock"), "-n", "k8s.io", "images", "import", filepath.Join(shared, image+".tar")).CombinedOutput()
			return err == nil
		})
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}
