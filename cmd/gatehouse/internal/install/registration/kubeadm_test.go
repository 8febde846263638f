package registration

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// authentication are options with all files in one directory.
func authentication(change ...func(*KubeconfigOptions)) KubeconfigOptions {
	o := KubeconfigOptions{
		Name: "gatehouse", Server: Server{URL: "https://192.0.2.10:9443"},
		CAFile: "/etc/kubernetes/gatehouse/ca.crt", ClientCert: "/etc/kubernetes/gatehouse/client.crt", ClientKey: "/etc/kubernetes/gatehouse/client.key",
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

// files says which files kube-apiserver is given.
func files(ca, cert, key string) func(*KubeconfigOptions) {
	return func(o *KubeconfigOptions) { o.CAFile, o.ClientCert, o.ClientKey = ca, cert, key }
}

// The flags are what a test's kube-apiserver takes: --name=value. That they are
// flags of kube-apiserver, with these types, is what the end-to-end tests show.
func TestFlags(t *testing.T) {
	text, err := Flags(authentication(func(o *KubeconfigOptions) { o.Path = "/srv/a path/webhook.yaml" }), false)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	set := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	file := set.String("authentication-token-webhook-config-file", "", "")
	version := set.String("authentication-token-webhook-version", "v1beta1", "")
	ttl := set.Duration("authentication-token-webhook-cache-ttl", 2*time.Minute, "")
	if err := set.Parse(lines); err != nil || set.NArg() > 0 {
		t.Fatalf("%v, %q", err, set.Args())
	}
	if *file != "/srv/a path/webhook.yaml" || *version != "v1" || *ttl != 30*time.Second {
		t.Errorf("file %q, version %q, TTL %s", *file, *version, *ttl)
	}

	text, err = Flags(authentication(), true)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"authentication-token-webhook-config-file": "/etc/kubernetes/gatehouse/kubeconfig.yaml",
		"authentication-token-webhook-version":     "v1",
		"authentication-token-webhook-cache-ttl":   "30s",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// staticPod is kube-apiserver's manifest as kubeadm makes it, shortened.
const staticPod = `
apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  containers:
  - command: [kube-apiserver, --advertise-address=192.0.2.2, --authorization-mode=Node]
    image: registry.k8s.io/kube-apiserver:v1.37.0
    name: kube-apiserver
    volumeMounts:
    - {mountPath: /etc/ssl/certs, name: ca-certs, readOnly: true}
    - {mountPath: /etc/kubernetes/pki, name: k8s-certs, readOnly: true}
  hostNetwork: true
  volumes:
  - {hostPath: {path: /etc/ssl/certs, type: DirectoryOrCreate}, name: ca-certs}
  - {hostPath: {path: /etc/kubernetes/pki, type: DirectoryOrCreate}, name: k8s-certs}
`

// The pod that kubeadm makes with the patch has all that it had and what
// kube-apiserver needs, and is the one that it makes from its configuration.
func TestKubeadmPatchesTheStaticPod(t *testing.T) {
	for name, o := range map[string]KubeconfigOptions{
		"one directory":    authentication(),
		"many directories": authentication(files("/etc/a/ca.crt", "/etc/b/client.crt", "/etc/kubernetes/pki/gatehouse/client.key")),
	} {
		t.Run(name, func(t *testing.T) {
			before, after := patched(t, o)
			container := &after.Spec.Containers[0]
			var configured clusterConfiguration
			configuration(t, o, &configured)
			want := before.DeepCopy()
			for _, f := range configured.APIServer.ExtraArgs {
				want.Spec.Containers[0].Command = append(want.Spec.Containers[0].Command, "--"+f.Name+"="+f.Value)
			}
			for _, m := range configured.APIServer.ExtraVolumes {
				want.Spec.Containers[0].VolumeMounts = append(want.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly})
				want.Spec.Volumes = append(want.Spec.Volumes, corev1.Volume{Name: m.Name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: m.HostPath, Type: &m.PathType}}})
			}
			if !reflect.DeepEqual(after, want) {
				t.Errorf("got %+v\nwant %+v", after.Spec, want.Spec)
			}

			// What the API server would refuse about a pod: mounts of volumes that there
			// are not, and two of one name or path.
			volumes, paths := map[string]string{}, map[string]bool{}
			for _, v := range after.Spec.Volumes {
				if volumes[v.Name] != "" {
					t.Errorf("two volumes %q", v.Name)
				}
				volumes[v.Name] = v.HostPath.Path
			}
			for _, m := range container.VolumeMounts {
				if paths[m.MountPath] || volumes[m.Name] != m.MountPath || !m.ReadOnly {
					t.Errorf("mount %+v of %v", m, volumes)
				}
				paths[m.MountPath] = true
			}
			for _, file := range []string{o.path(), o.CAFile, o.ClientCert, o.ClientKey} {
				if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(file, m.MountPath+"/") }) {
					t.Errorf("%s is in no volume", file)
				}
			}
		})
	}
}

// patched is the static pod before and after the patch.
func patched(t *testing.T, o KubeconfigOptions) (before, after *corev1.Pod) {
	t.Helper()
	d, _, err := KubeadmPatch(o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := YAML("", []Document{d})
	if err != nil {
		t.Fatal(err)
	}
	operations, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := yaml.YAMLToJSONStrict([]byte(staticPod))
	if err != nil {
		t.Fatal(err)
	}
	result, err := patch.Apply(manifest)
	if err != nil {
		t.Fatal(err)
	}
	before, after = &corev1.Pod{}, &corev1.Pod{}
	for text, pod := range map[string]*corev1.Pod{string(manifest): before, string(result): after} {
		if strict, err := sigsjson.UnmarshalStrict([]byte(text), pod); err != nil || len(strict) > 0 {
			t.Fatal(err, strict)
		}
	}
	return before, after
}

func configuration(t *testing.T, o KubeconfigOptions, into *clusterConfiguration) {
	t.Helper()
	d, _, err := Kubeadm(o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := JSON([]Document{d})
	if err != nil {
		t.Fatal(err)
	}
	if strict, err := sigsjson.UnmarshalStrict(text, into); err != nil || len(strict) > 0 {
		t.Fatal(err, strict)
	}
}

func TestKubeadmMountsDirectories(t *testing.T) {
	pki := "/etc/kubernetes/pki/"
	for name, c := range map[string]struct {
		options KubeconfigOptions
		want    string // NAME=DIRECTORY of each
		note    string // a part of the one that there is
	}{
		"one directory": {options: authentication(), want: "gatehouse=/etc/kubernetes/gatehouse"},
		"paths relative to the kubeconfig": {
			options: authentication(files("ca.crt", "./client.crt", "../gatehouse/client.key")),
			want:    "gatehouse=/etc/kubernetes/gatehouse",
		},
		"each in its own": {
			options: authentication(files("/etc/a/ca.crt", "/etc/b/client.crt", "/etc/b/client.key")),
			want:    "gatehouse=/etc/kubernetes/gatehouse gatehouse-2=/etc/a gatehouse-3=/etc/b",
			note:    `the files are in different directories, and each becomes a volume of kube-apiserver's pod: "/etc/kubernetes/gatehouse", "/etc/a", "/etc/b" (hint: put them into one)`,
		},
		"one below another": {
			options: authentication(files("/etc/kubernetes/gatehouse/ca/ca.crt", "/etc/kubernetes/gatehouse/client/client.crt", "/etc/kubernetes/gatehouse/client/client.key")),
			want:    "gatehouse=/etc/kubernetes/gatehouse",
		},
		"a name that begins with another is not below it": {
			options: authentication(files("/etc/kubernetes/gatehouse2/ca.crt", "client.crt", "client.key")),
			want:    "gatehouse=/etc/kubernetes/gatehouse gatehouse-2=/etc/kubernetes/gatehouse2",
			note:    "different directories",
		},
		"what kubeadm mounts itself": {
			options: authentication(files(pki+"ca.crt", pki+"gatehouse/client.crt", "/etc/ssl/certs/client.key"), func(o *KubeconfigOptions) { o.Path = pki + "gatehouse.yaml" }),
		},
		"a long name": {
			options: authentication(files("/etc/a/ca.crt", "client.crt", "client.key"), func(o *KubeconfigOptions) { o.Name, o.Path = strings.Repeat("g", 63), "/etc/b/kubeconfig.yaml" }),
			want:    strings.Repeat("g", 63) + "=/etc/b " + strings.Repeat("g", 61) + "-2=/etc/a",
			note:    "different directories",
		},
	} {
		t.Run(name, func(t *testing.T) {
			mounts, notes, err := c.options.mounts()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range mounts {
				got = append(got, m.Name+"="+m.HostPath)
				if m.MountPath != m.HostPath || !m.ReadOnly || m.PathType != corev1.HostPathDirectory {
					t.Errorf("%+v", m)
				}
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got %s\nwant %s", text, c.want)
			}
			if text := strings.Join(notes, "\n"); text != c.note && (c.note == "" || !strings.Contains(text, c.note)) {
				t.Errorf("notes: got %s\nwant %s", text, c.note)
			}
		})
	}
}

func TestKubeadmRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		options KubeconfigOptions
		want    []string
	}{
		"directories that are for other things too": {
			authentication(files("/etc/kubernetes/ca.crt", "/client.crt", "/etc/pki/client.key"), func(o *KubeconfigOptions) { o.Path = "/etc/kubeconfig" }),
			[]string{
				`"/etc/kubeconfig": its whole directory is mounted into kube-apiserver's pod, so that the pod sees renewed files, but "/etc" has other files too (hint: use a separate directory, such as /etc/kubernetes/gatehouse)`,
				`"/etc/kubernetes/ca.crt": its whole directory`, `"/client.crt": its whole directory`, `"/etc/pki/client.key": its whole directory`,
			},
		},
		"a relative kubeconfig":  {authentication(func(o *KubeconfigOptions) { o.Path = "kubeconfig.yaml" }), []string{`the path "kubeconfig.yaml" of the kubeconfig must be absolute`}},
		"a name that is no name": {authentication(func(o *KubeconfigOptions) { o.Name = "a/b" }), []string{`name "a/b": must be a DNS label`}},
		"a path of two lines":    {authentication(files("/etc/a/ca\n.crt", "c", "k")), []string{`path "/etc/a/ca\n.crt": must be printable characters`}},
		"nothing at all":         {KubeconfigOptions{}, []string{"name", "a URL", "a CA file", "a client certificate"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, of := range []func(KubeconfigOptions) (Document, []string, error){Kubeadm, KubeadmPatch} {
				_, _, err := of(c.options)
				for _, want := range c.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want also %q", err, want)
					}
				}
			}
		})
	}
}

func TestServiceNamesAreNoted(t *testing.T) {
	for host, noted := range map[string]bool{
		"gatehouse.gatehouse-system.svc": true, "gatehouse.gatehouse-system.svc.cluster.local": true, "a.svc.example": true,
		"gatehouse.example": false, "192.0.2.10": false, "svc.example": false, "[2001:db8::1]": false,
	} {
		o := authentication(func(o *KubeconfigOptions) { o.Server.URL = "https://" + host + ":9443" })
		if notes := o.Notes(); len(notes) > 0 != noted || noted && !strings.Contains(notes[0], `the host "`+host+`" looks like the name of a Service`) {
			t.Errorf("%s: got %q", host, notes)
		}
	}
}

// The files that are listed for people are those that kube-apiserver reads.
func TestKubeadmListsTheFiles(t *testing.T) {
	o := authentication(files("ca.crt", "/etc/b/../b/client.crt", "/etc/b/client.crt"))
	want := []string{"/etc/kubernetes/gatehouse/kubeconfig.yaml", "/etc/kubernetes/gatehouse/ca.crt", "/etc/b/client.crt"}
	if got := o.files(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
