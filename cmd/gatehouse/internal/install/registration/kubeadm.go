package registration

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// kube-apiserver of kubeadm is a static pod, which sees the files of its host
// that are mounted. They are mounted by directory: a mounted file stays the file
// that it was when another takes its place under its name, which is how
// certificates are renewed.

// clusterConfiguration is the part of kubeadm.k8s.io/v1beta4 ClusterConfiguration
// that is about kube-apiserver. kubeadm's own types are in k8s.io/kubernetes,
// which is not made to be imported.
type clusterConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	APIServer struct {
		ExtraArgs    []flag          `json:"extraArgs"`
		ExtraVolumes []hostPathMount `json:"extraVolumes,omitempty"`
	} `json:"apiServer"`
}

// hostPathMount is kubeadm's type of this name.
type hostPathMount struct {
	Name      string              `json:"name"`
	HostPath  string              `json:"hostPath"`
	MountPath string              `json:"mountPath"`
	ReadOnly  bool                `json:"readOnly,omitempty"`
	PathType  corev1.HostPathType `json:"pathType,omitempty"`
}

// Kubeadm makes what a kubeadm cluster needs in its ClusterConfiguration for
// kube-apiserver to ask Gatehouse about tokens, or to present its certificate for
// admission reviews, and remarks on it.
//
// It is the configuration and not a patch of the static pod, because kubeadm
// keeps it in the cluster: every later upgrade and every further control plane
// node has it.
func Kubeadm(o KubeconfigOptions) (Document, []string, error) {
	mounts, notes, err := o.mounts()
	if err != nil {
		return Document{}, nil, err
	}
	c := clusterConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: "kubeadm.k8s.io/v1beta4", Kind: "ClusterConfiguration"}}
	c.APIServer.ExtraArgs = o.flags()
	c.APIServer.ExtraVolumes = mounts
	return Document{
		comment: fmt.Sprintf(`For kubeadm 1.31 and later. First copy these files to every control
plane node; kube-apiserver does not start without them:
%s
A new cluster: merge this into the file of 'kubeadm init --config FILE'.

A running cluster: merge apiServer into what kubeadm keeps in the cluster,
  kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-system edit configmap kubeadm-config
and then, on one control plane node after the other,
  %s
kubeadm waits for kube-apiserver, and restores the old manifest if it does not
come up. Later upgrades keep the change.`, o.fileList(), upgradeCommand),
		object: &c,
	}, notes, nil
}

// upgradeCommand has kubeadm make the manifest of kube-apiserver anew from what
// it keeps in the cluster. etcd would be restarted too if it were not left out.
const upgradeCommand = "kubeadm upgrade node phase control-plane --etcd-upgrade=false --certificate-renewal=false"

// patchOperation is an operation of a JSON patch (RFC 6902).
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// KubeadmPatch makes a patch of kube-apiserver's static pod, for a file named
// kube-apiserver0+json.yaml in the directory of kubeadm's --patches, and remarks
// on it.
//
// It is a JSON patch: in a strategic merge patch the flags would replace all
// others, because a command is a list without keys. kubeadm always applies it to
// a manifest that it has just made, so that nothing is added twice.
func KubeadmPatch(o KubeconfigOptions) (Document, []string, error) {
	mounts, notes, err := o.mounts()
	if err != nil {
		return Document{}, nil, err
	}
	const container = "/spec/containers/0"
	var operations []patchOperation
	add := func(path string, value any) {
		operations = append(operations, patchOperation{Op: "add", Path: path + "/-", Value: value})
	}
	for _, f := range o.flags() {
		add(container+"/command", f.String())
	}
	for _, m := range mounts {
		add(container+"/volumeMounts", corev1.VolumeMount{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly})
		add("/spec/volumes", corev1.Volume{Name: m.Name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: m.HostPath, Type: &m.PathType},
		}})
	}
	return Document{
		comment: fmt.Sprintf(`For one control plane node alone, such as the first to try this out. Save it as
%s in a directory of its own, DIR. First of all these
files must be on the node; kube-apiserver does not start without them:
%s
A new node: kubeadm init --patches DIR, or kubeadm join --patches DIR.

A running node:
  %s --patches DIR
kubeadm waits for kube-apiserver, and restores the old manifest if it does not
come up. Give --patches DIR with every later upgrade of the node too: kubeadm
does not keep patches, and what is not given again is gone. Leave it out when
kubeadm's configuration says the same: a volume can be there once.`, patchFile, o.fileList(), upgradeCommand),
		object: operations,
	}, notes, nil
}

// patchFile is the name by which kubeadm knows what is to be patched, and how.
const patchFile = "kube-apiserver0+json.yaml"

func (o *KubeconfigOptions) fileList() string {
	var lines strings.Builder
	for _, file := range o.files() {
		lines.WriteString("  " + file + "\n")
	}
	return lines.String()
}

// mounts are the directories that kube-apiserver's pod needs, that of the
// kubeconfig first, and remarks on them.
func (o *KubeconfigOptions) mounts() ([]hostPathMount, []string, error) {
	problems := []error{o.check()}
	if !o.Admission && !path.IsAbs(o.path()) {
		problems = append(problems, fmt.Errorf("the path %q of the kubeconfig must be absolute: it is mounted into kube-apiserver's pod", o.path()))
		return nil, nil, errors.Join(problems...)
	}
	directories := []string{}
	for _, file := range o.files() {
		directory := path.Dir(file)
		if shared(directory) {
			problems = append(problems, fmt.Errorf("%q: its whole directory is mounted into kube-apiserver's pod, so that the pod sees renewed files, but %q has other files too (hint: use a separate directory, such as /etc/kubernetes/%s)", file, directory, o.Name))
		}
		if !slices.Contains(directories, directory) {
			directories = append(directories, directory)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, nil, err
	}
	all := slices.Concat(kubeadmMounts(), directories)
	directories = slices.DeleteFunc(directories, func(directory string) bool {
		return slices.ContainsFunc(all, func(other string) bool { return strings.HasPrefix(directory, other+"/") }) ||
			slices.Contains(kubeadmMounts(), directory)
	})
	mounts := make([]hostPathMount, len(directories))
	for i, directory := range directories {
		mounts[i] = hostPathMount{
			Name: o.Name, HostPath: directory, MountPath: directory, ReadOnly: true,
			// A directory that is not there is said to be missing; one that the
			// kubelet created would be empty, and kube-apiserver would fail over that.
			PathType: corev1.HostPathDirectory,
		}
		if i == 0 {
			continue
		}
		suffix := "-" + strconv.Itoa(i+1)
		mounts[i].Name = o.Name[:min(len(o.Name), validation.DNS1123LabelMaxLength-len(suffix))] + suffix
	}
	notes := o.Notes()
	if o.Admission && len(mounts) > 0 {
		notes = append(notes, "kube-apiserver has one --admission-control-config-file: where it is set already, add the plugins to that file (hint: where token reviews are set up, the directory is mounted already, and a volume can be there once)")
	}
	if len(mounts) > 1 {
		notes = append(notes, fmt.Sprintf("the files are in different directories, and each becomes a volume of kube-apiserver's pod: %s (hint: put them into one)", quotedList(directories)))
	}
	return mounts, notes, nil
}

// kubeadmMounts are the directories that kubeadm mounts into kube-apiserver's
// pod in every cluster. What is in and below them is there already, and a second
// volume at one of their paths would make the pod invalid.
func kubeadmMounts() []string { return []string{"/etc/kubernetes/pki", "/etc/ssl/certs"} }

// shared reports whether a directory is not one to mount whole: one that holds the
// credentials of an administrator or a part of the image, or one that kubeadm
// mounts on some hosts and not on others.
func shared(directory string) bool {
	return strings.Count(directory, "/") < 2 || slices.Contains([]string{
		"/etc/kubernetes", "/etc/kubernetes/manifests", "/etc/ssl", "/usr/bin", "/usr/local", "/usr/local/bin", "/usr/share",
		"/etc/pki", "/etc/pki/ca-trust", "/etc/pki/tls", "/etc/pki/tls/certs", "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
	}, directory)
}

func quotedList(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = strconv.Quote(text)
	}
	return strings.Join(quoted, ", ")
}
