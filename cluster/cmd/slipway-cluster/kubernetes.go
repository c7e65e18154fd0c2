package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	core "k8s.io/api/core/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"slipway/cluster/builder"
	"slipway/cluster/kube"
	"slipway/internal/build/build"
	"slipway/internal/program/runtime"
	"slipway/internal/server"
)

// kubernetes holds the flags of the cluster and implements [server.Elsewhere].
type kubernetes struct {
	Kubeconfig string   `help:"Kubeconfig file. Default: the pod's service account." env:"KUBECONFIG" type:"path" placeholder:"FILE"`
	Namespace  string   `name:"kubernetes-namespace" help:"Namespace of programs. Nothing else should be in it." default:"slipway-programs" placeholder:"NAME"`
	Images     string   `name:"kubernetes-images" help:"JSON file that lists the images of programs, the preferred one first: [{\"name\": IMAGE, \"node\": VERSION, \"php\": [VERSION]}]." required:"" type:"path" placeholder:"FILE"`
	BuildImage string   `name:"kubernetes-build-image" help:"Image for builds, each in its own pod. Default: none; builds then need a sandbox in this process." placeholder:"IMAGE"`
	Owner      string   `name:"kubernetes-owner" help:"ConfigMap in the namespace of programs. Once it is deleted, the cluster deletes all that was made there for programs, except for volumes. Default: none." placeholder:"NAME"`
	Address    string   `name:"kubernetes-address" help:"IP address at which pods reach this process." required:"" placeholder:"IP"`
	Files      string   `name:"kubernetes-listen" help:"Address at which pods fetch the files of programs, over TLS." default:":8444" placeholder:"HOST:PORT"`
	Canary     string   `name:"kubernetes-canary" help:"Address that no pod may reach: a program whose pod reaches it is not started." default:":8445" placeholder:"HOST:PORT"`
	Class      string   `name:"kubernetes-storage-class" help:"Storage class of the volumes that hold what sites store. Default: the cluster's." placeholder:"NAME"`
	Access     string   `name:"kubernetes-storage-access" help:"How these volumes are used: ReadWriteOnce keeps the programs of a site on one node, ReadWriteMany does not." enum:"ReadWriteOnce,ReadWriteMany" default:"ReadWriteOnce"`
	Own        []string `name:"kubernetes-own-range" help:"Public network (CIDR) that is the cluster's own, such as that of its API server: closed to programs, also at their further ports. Repeatable." placeholder:"CIDR"`
	FirstUID   int64    `name:"kubernetes-first-uid" help:"First of the 65,536 user ids that sites' pods run under. Installations in one cluster should not share them: a node counts processes by user id." default:"200000" placeholder:"UID"`
	Unenforced bool     `name:"allow-unenforced-network" help:"Start programs on a cluster that doesn't enforce network policies. They reach everything that its pods reach."`
}

// Limits of requests to the API server per second. Starting a program takes about four.
const (
	apiRate  = 100
	apiBurst = 200
)

// Open connects to the cluster and starts the engine.
func (k *kubernetes) Open(ctx context.Context, n server.Node) (_ runtime.Host, err error) {
	if net.ParseIP(k.Address) == nil {
		return nil, fmt.Errorf("--kubernetes-address: %q is not an IP address", k.Address)
	}
	for _, own := range k.Own {
		if _, err := netip.ParsePrefix(own); err != nil {
			return nil, fmt.Errorf("--kubernetes-own-range: %w", err)
		}
	}
	if k.FirstUID < 1 || k.FirstUID > math.MaxInt32-build.UIDs+1 {
		return nil, fmt.Errorf("--kubernetes-first-uid: %d is not between 1 and %d", k.FirstUID, math.MaxInt32-build.UIDs+1)
	}
	images, err := readImages(k.Images)
	if err != nil {
		return nil, fmt.Errorf("--kubernetes-images: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", k.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	config.QPS, config.Burst = apiRate, apiBurst
	config.UserAgent = "slipway/" + version
	api, err := client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	c := kube.Config{
		Client: api, Namespace: k.Namespace, Name: n.ID, Bundles: n.Bundles, Users: n.Users, UIDs: k.FirstUID - build.FirstUID, Images: images, BuildImage: k.BuildImage, Owner: k.Owner, Address: k.Address, Log: n.Log,
		Dir: filepath.Join(n.Dir, "copies"), Edge: n.Edge, Redis: n.Redis, Own: k.Own,
		Storage: kube.Storage{Class: k.Class, Access: core.PersistentVolumeAccessMode(k.Access)},
	}
	if c.Packs, err = net.Listen("tcp", k.Files); err != nil {
		return nil, fmt.Errorf("--kubernetes-listen: %w", err)
	}
	defer func() {
		if err != nil {
			c.Packs.Close()
		}
	}()
	if !k.Unenforced {
		if c.Canary, err = net.Listen("tcp", k.Canary); err != nil {
			return nil, fmt.Errorf("--kubernetes-canary: %w", err)
		}
	}
	// Requests in progress need the engine after the service was asked to stop.
	engine, err := kube.New(context.WithoutCancel(ctx), c)
	if err != nil {
		return nil, err
	}
	if k.BuildImage != "" {
		n.Builds.CarryOut(builder.New(builder.Config{Pods: engine, CAFile: n.CAFile, Log: n.Log}))
	}
	return engine, nil
}

// maxImages caps the file of images in bytes.
const maxImages = 1 << 20

func readImages(file string) (images []kube.Image, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxImages))
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&images); err != nil {
		return nil, err
	}
	if len(images) == 0 {
		return nil, errors.New("it lists no image")
	}
	for _, i := range images {
		if i.Name == "" || i.Node == "" && len(i.PHP) == 0 {
			return nil, errors.New("each image needs a name and the versions of its Node.js or PHP")
		}
	}
	return images, nil
}
