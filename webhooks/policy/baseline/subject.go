package baseline

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/image"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// Subject is an object that violates rules, in the form in which its values are compared.
//
// The form does not change while nobody changes the object, and a pod that a controller makes anew has that of the pod before, and
// that of the template in the workload. It has the defaults of Kubernetes, and lacks what the API server and controllers write into an
// object: see volatile.
type Subject struct {
	Object
	// owner has the name of Object, kind is that of the object itself.
	owner Owner
	kind  schema.GroupVersionKind
	// isMade is true for an object that is known by the workload that made it: its own name changes.
	isMade bool
	fields map[string]any
}

// Owner is a workload that makes pods, or other objects that make pods.
type Owner struct{ Group, Kind, Name string }

var (
	deployment = Owner{Group: "apps", Kind: "Deployment"}     //nolint:gochecknoglobals // constant
	rollout    = Owner{Group: "argoproj.io", Kind: "Rollout"} //nolint:gochecknoglobals // constant
	cronJob    = Owner{Group: "batch", Kind: "CronJob"}       //nolint:gochecknoglobals // constant
)

// top returns the workload that is behind a ReplicaSet or a Job, or the owner itself. Nothing but names tells, so that a pod
// belongs to the same workload before and after its ReplicaSet or Job is there, and without any look-up. Labels are those of the
// pod, of the template or of the ReplicaSet: all of them have the hash that the name ends in.
//
// Whoever forges such a name in the namespace gains a pod with the values with which the workload makes pods already.
func (o Owner) top(labels map[string]any) Owner {
	switch {
	case o.Kind == "ReplicaSet" && o.Group == deployment.Group:
		for _, by := range [...]struct {
			label string
			owner Owner
		}{{"pod-template-hash", deployment}, {"rollouts-pod-template-hash", rollout}} {
			hash, _ := labels[by.label].(string)
			if name, is := strings.CutSuffix(o.Name, "-"+hash); is && hash != "" && name != "" {
				return Owner{by.owner.Group, by.owner.Kind, name}
			}
		}
	case o.Kind == "Job" && o.Group == cronJob.Group:
		// The CronJob controller appends the minutes since 1970: these are of 2015 to 2084. A date such as 20261231 is none.
		const first, last, digits = 24_000_000, 60_000_000, 8
		at := strings.LastIndexByte(o.Name, '-')
		if at <= 0 || len(o.Name)-at-1 != digits {
			break
		}
		if minutes, err := strconv.ParseUint(o.Name[at+1:], 10, 32); err == nil && minutes >= first && minutes < last {
			return Owner{cronJob.Group, cronJob.Kind, o.Name[:at]}
		}
	}
	return o
}

// UnknownError says why an object cannot be in a baseline.
type UnknownError string

// Error returns it.
func (e UnknownError) Error() string { return string(e) }

// NewSubject returns the object with that text, which is checked JSON. From is the workload for the pod of a pod template, and zero
// for an object of its own.
func NewSubject(kind schema.GroupVersionKind, namespace string, from Owner, text rawjson.Value) (*Subject, error) {
	decoded, err := defaults.Filled(kind, withoutRecords(text))
	if err != nil {
		return nil, fmt.Errorf("the object cannot be read: %w", err)
	}
	fields, _ := decoded.(map[string]any)
	s := &Subject{kind: kind, fields: fields}
	metadata, _ := fields["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	name, _ := metadata["name"].(string)
	own := Owner{kind.Group, kind.Kind, name}
	if from == (Owner{}) {
		if from = own; s.isPod() {
			from = controllerOf(metadata, own)
		}
	}
	s.owner = from.top(labels)
	if s.isMade = s.owner != own; s.owner.Name == "" {
		return nil, UnknownError("its name is generated, and no workload makes it")
	}
	s.Object = Object{Namespace: namespace, Kind: s.owner.Kind, Name: s.owner.Name}
	s.normalise(metadata, name)
	return s, nil
}

// withoutRecords returns an object without the two parts that are long and not compared.
func withoutRecords(text rawjson.Value) rawjson.Value {
	out := append(make(rawjson.Value, 0, len(text)), '{')
	member := func(name, value rawjson.Value) {
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), value...)
	}
	for name, value := range text.Members() {
		switch {
		case name.Is("status"):
		case name.Is("metadata") && value.Kind() == rawjson.Object:
			member(name, rawjson.Value{'{'})
			for name, value := range value.Members() {
				if !name.Is("managedFields") {
					member(name, value)
				}
			}
			out = append(out, '}')
		default:
			member(name, value)
		}
	}
	return append(out, '}')
}

func (s *Subject) isPod() bool { return s.kind.Group == "" && s.kind.Kind == "Pod" }

// controllerOf returns the controller of a pod, and the pod itself without one. A kubelet is the controller of a static pod, whose
// name does not change.
func controllerOf(metadata map[string]any, pod Owner) Owner {
	references, _ := metadata["ownerReferences"].([]any)
	for _, reference := range references {
		fields, _ := reference.(map[string]any)
		if fields["controller"] != true {
			continue
		}
		version, _ := fields["apiVersion"].(string)
		kind, _ := fields["kind"].(string)
		name, _ := fields["name"].(string)
		group, _, isGroup := strings.Cut(version, "/")
		if !isGroup {
			group = ""
		}
		if group == "" && kind == "Node" {
			break
		}
		return Owner{group, kind, name}
	}
	return pod
}

// volatile are fields that change while nobody changes the object, or differ between the pods of one template. They are left out of
// what is compared. Of rules that read one of them by its name nothing is known.
var (
	//nolint:gochecknoglobals // constant
	volatileOfAll = [][]string{
		{"metadata", "creationTimestamp"},
		{"metadata", "deletionGracePeriodSeconds"},
		{"metadata", "deletionTimestamp"},
		{"metadata", "generation"},
		{"metadata", "managedFields"},
		{"metadata", "ownerReferences"},
		{"metadata", "resourceVersion"},
		{"metadata", "selfLink"},
		{"metadata", "uid"},
		{"metadata", "annotations", "deployment.kubernetes.io/revision"},
		{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"},
		{"status"},
	}
	// volatileOfMade are those of objects that controllers make.
	//nolint:gochecknoglobals // constant
	volatileOfMade = [][]string{
		{"metadata", "annotations", "batch.kubernetes.io/cronjob-scheduled-timestamp"},
		{"metadata", "generateName"},
		{"metadata", "labels", "batch.kubernetes.io/controller-uid"},
		{"metadata", "labels", "batch.kubernetes.io/job-completion-index"},
		{"metadata", "labels", "batch.kubernetes.io/job-name"},
		{"metadata", "labels", "controller-revision-hash"},
		{"metadata", "labels", "controller-uid"},
		{"metadata", "labels", "job-name"},
		{"metadata", "labels", "pod-template-generation"},
		{"metadata", "labels", "pod-template-hash"},
		{"metadata", "labels", "rollouts-pod-template-hash"},
		{"metadata", "name"},
	}
	//nolint:gochecknoglobals // constant
	volatileOfPods = [][]string{
		{"metadata", "annotations", "batch.kubernetes.io/job-completion-index"},
		{"metadata", "annotations", "kubectl.kubernetes.io/restartedAt"},
		{"metadata", "annotations", "kubernetes.io/limit-ranger"},
		{"metadata", "annotations", "sidecar.gatehouse.dev/status"},
		{"metadata", "finalizers"},
		{"metadata", "labels", "apps.kubernetes.io/pod-index"},
		{"metadata", "labels", "statefulset.kubernetes.io/pod-name"},
		{"spec", "nodeName"},
		{"spec", "preemptionPolicy"},
		{"spec", "priority"},
	}
	// volatileOf are those of the pods of one kind of workload.
	//nolint:gochecknoglobals // constant
	volatileOf = map[string][][]string{
		"DaemonSet":   {{"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"}},
		"Job":         {{"spec", "hostname"}},
		"CronJob":     {{"spec", "hostname"}},
		"StatefulSet": {{"spec", "hostname"}, {"spec", "subdomain"}},
	}
)

// volatile returns the paths of the fields of this object that are left out.
func (s *Subject) volatile() [][]string {
	out := volatileOfAll
	if s.isMade {
		out = slices.Concat(out, volatileOfMade)
	}
	if s.isPod() {
		out = slices.Concat(out, volatileOfPods, volatileOf[s.owner.Kind])
	}
	return out
}

// normalise brings the object into the form in which it is compared.
func (s *Subject) normalise(metadata map[string]any, name string) {
	for _, path := range s.volatile() {
		remove(s.fields, path)
	}
	// Names and namespaces are part of the digest already. A template without labels makes pods that have some.
	delete(metadata, "name")
	delete(metadata, "namespace")
	for _, field := range []string{"labels", "annotations"} {
		if of, is := metadata[field].(map[string]any); is && len(of) == 0 {
			delete(metadata, field)
		}
	}
	if !s.isPod() {
		return
	}
	spec, _ := s.fields["spec"].(map[string]any)
	for _, list := range ContainerLists() {
		for container := range objects(spec[list]) {
			for mount := range objects(container["volumeMounts"]) {
				shorten(mount, "name")
			}
		}
	}
	for volume := range objects(spec["volumes"]) {
		shorten(volume, "name")
		if claim, is := volume["persistentVolumeClaim"].(map[string]any); is && s.owner.Kind == "StatefulSet" {
			text, _ := claim["claimName"].(string)
			claim["claimName"] = strings.TrimSuffix(text, "-"+name)
		}
	}
	if tolerations, is := spec["tolerations"].([]any); is && s.owner.Kind == "DaemonSet" {
		// The controller adds them to every pod.
		spec["tolerations"] = slices.DeleteFunc(tolerations, func(toleration any) bool {
			fields, _ := toleration.(map[string]any)
			key, _ := fields["key"].(string)
			return strings.HasPrefix(key, "node.kubernetes.io/") && fields["operator"] == "Exists"
		})
	}
}

// tokenVolume begins the name of the volume with the token of a service account. The API server appends five random characters.
const tokenVolume = "kube-api-access-"

// shorten removes the random characters of the volume's name.
func shorten(fields map[string]any, name string) {
	if text, _ := fields[name].(string); strings.HasPrefix(text, tokenVolume) {
		fields[name] = tokenVolume
	}
}

// objects yields the elements of a list that are objects.
func objects(list any) func(yield func(map[string]any) bool) {
	elements, _ := list.([]any)
	return func(yield func(map[string]any) bool) {
		for _, element := range elements {
			if fields, is := element.(map[string]any); is && !yield(fields) {
				return
			}
		}
	}
}

// remove removes a field, and each of the objects around it that is empty then.
func remove(fields map[string]any, path []string) {
	if len(path) > 1 {
		inner, is := fields[path[0]].(map[string]any)
		if !is {
			return
		}
		if remove(inner, path[1:]); len(inner) > 0 {
			return
		}
	}
	delete(fields, path[0])
}

// WhyUnbounded returns why a rule that reads this of the object, and this with its match conditions, cannot be in a baseline, and "" if
// it can.
func (s *Subject) WhyUnbounded(own, reads *expression.Reads) string {
	switch {
	case own.IsWhole():
		return "it reads the whole object"
	case own.IsWhole("metadata"):
		return "it reads all of metadata"
	case s.kind.Group == "" && s.kind.Kind == "Secret" && (reads.Touches("data") || reads.Touches("stringData")):
		return "it reads the data of a Secret, which could be guessed by the digest"
	}
	for _, path := range s.volatile() {
		if own.Names(path...) {
			return fmt.Sprintf("it reads %s, which changes by itself", strings.Join(path, "."))
		}
	}
	return ""
}

// IsMade reports whether the object is known by the workload that makes it, and not by its own name.
func (s *Subject) IsMade() bool { return s.isMade }

// RuleID is a rule of a policy, as a digest knows it.
type RuleID struct {
	RuleName

	// Source is what the rule says, so that another rule of the same name has other digests.
	Source []byte
	// Annotations is part of the names of the annotations that it reads besides, "" for none.
	Annotations string
	// Request are values that the rule reads of the request, in a fixed order.
	Request []string
	// Programs says that the programs of the pod at the path Pod count too: a privilege is as dangerous as the program that has it.
	Programs bool
	Pod      []string
}

// version is that of what is hashed. Another one makes all baselines invalid.
const version = "gatehouse.dev/PolicyBaseline/1"

// Entry returns the entry of a violation of a rule that reads this of the object.
func (s *Subject) Entry(rule RuleID, reads *expression.Reads) Entry {
	source := sha256.Sum256(rule.Source)
	text := []byte{'['}
	for _, part := range slices.Concat([]string{
		version, rule.Kind, rule.Policy, rule.Rule, hex.EncodeToString(source[:]),
		s.kind.Group, s.kind.Kind, s.owner.Group, s.owner.Kind, s.Namespace, s.owner.Name,
	}, rule.Request) {
		text = append(rawjson.AppendString(text, part), ',')
	}
	if metadata, is := s.fields["metadata"].(map[string]any); is && rule.Annotations != "" {
		annotations, _ := metadata["annotations"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(annotations)) {
			if value, _ := annotations[name].(string); strings.Contains(name, rule.Annotations) {
				text = append(rawjson.AppendString(append(rawjson.AppendString(text, name), ':'), value), ',')
			}
		}
	}
	if rule.Programs {
		text = appendPrograms(text, s.fields, rule.Pod)
	}
	text = append(reads.AppendRead(text, s.fields), ']')
	return Entry{Object: s.String(), Digest: sha256.Sum256(text)}
}

// ContainerLists returns the names of the lists of containers in the spec of a pod.
func ContainerLists() [3]string {
	return [...]string{"containers", "initContainers", "ephemeralContainers"}
}

// at returns what is at a path of objects, nil if nothing is.
func at(fields map[string]any, path ...string) (value any) {
	value = fields
	for _, name := range path {
		fields, _ = value.(map[string]any)
		value = fields[name]
	}
	return value
}

// HasPower reports whether the pod at a path of the object has power over its node, in a field that a rule reads.
func (s *Subject) HasPower(reads *expression.Reads, pod []string) bool {
	path := append(slices.Clip(pod), "spec")
	spec, _ := at(s.fields, path...).(map[string]any)
	has := func(value any, field ...string) bool {
		added, _ := value.([]any)
		return (value == true || value == "Unmasked" || len(added) > 0) && reads.Touches(slices.Concat(path, field)...)
	}
	for _, name := range []string{"hostIPC", "hostNetwork", "hostPID"} {
		if has(spec[name], name) {
			return true
		}
	}
	if process := []string{"securityContext", "windowsOptions", "hostProcess"}; has(at(spec, process...), process...) {
		return true
	}
	for volume := range objects(spec["volumes"]) {
		if has(volume["hostPath"] != nil, "volumes", expression.EachElement, "hostPath") {
			return true
		}
	}
	for _, list := range ContainerLists() {
		for container := range objects(spec[list]) {
			for _, field := range [...][]string{{"capabilities", "add"}, {"privileged"}, {"procMount"}, {"windowsOptions", "hostProcess"}} {
				field = append([]string{"securityContext"}, field...)
				if has(at(container, field...), append([]string{list, expression.EachElement}, field...)...) {
					return true
				}
			}
		}
	}
	return false
}

// appendPrograms appends what the containers of a pod run: of the image the name, so that the next version of a program has the same
// text, and the command with its arguments.
func appendPrograms(text []byte, fields map[string]any, pod []string) []byte {
	for _, list := range ContainerLists() {
		for container := range objects(at(fields, slices.Concat(pod, []string{"spec", list})...)) {
			of, _ := container["image"].(string)
			if reference, ok := image.Parse(of); ok {
				of = reference.Name
			}
			text = append(rawjson.AppendString(append(text, '['), of), ',')
			for _, field := range []string{"command", "args"} {
				text = append(text, '[')
				parts, _ := container[field].([]any)
				for _, part := range parts {
					word, _ := part.(string)
					text = append(rawjson.AppendString(text, word), ',')
				}
				text = append(text, ']')
			}
			text = append(text, ']')
		}
	}
	return append(text, ',')
}
