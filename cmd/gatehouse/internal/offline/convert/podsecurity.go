package convert

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/image"
)

// excludedControl is a control of a Pod Security Standard that a rule or an exception of Kyverno leaves out.
type excludedControl struct {
	ControlName     string   `json:"controlName"`
	Images          []string `json:"images,omitempty"`
	RestrictedField string   `json:"restrictedField,omitempty"`
	Values          []string `json:"values,omitempty"`
}

// exemption is what controls that are left out become: checks, of some containers or, if it is nil, of the whole pod.
type exemption struct {
	checks     []string
	containers *v1alpha1.ExceptionContainers
}

// noteImages says in what the images of an exemption differ.
const noteImages = `an image is compared as Docker completes it, nginx as docker.io/library/nginx:latest, and a "*" in its path ends at a slash`

// checksOf returns the checks of a control, and whether all of them are about fields of the pod, not of containers.
// See https://github.com/kyverno/kyverno/blob/main/pkg/pss/utils/mapping.go.
func checksOf(control string) (checks []string, ofPod bool) {
	ofPods := map[string]string{"Host Namespaces": "hostNamespaces", "HostPath Volumes": "hostPathVolumes", "Sysctls": "sysctls", "Volume Types": "restrictedVolumes"}
	ofContainers := map[string]string{
		"Capabilities": "capabilities_baseline capabilities_restricted", "Seccomp": "seccompProfile_baseline seccompProfile_restricted",
		"Privileged Containers": "privileged", "Host Ports": "hostPorts", "/proc Mount Type": "procMount", "HostProcess": "windowsHostProcess",
		"SELinux": "seLinuxOptions", "AppArmor": "appArmorProfile", "Privilege Escalation": "allowPrivilegeEscalation",
		"Running as Non-root": "runAsNonRoot", "Running as Non-root user": "runAsUser",
	}
	return strings.Fields(ofPods[control] + ofContainers[control]), ofPods[control] != ""
}

// exemptions returns what the controls become, one exemption for each list of images.
func exemptions(field string, excluded []excludedControl) (out []exemption, err error) {
	for i, e := range excluded {
		at := fmt.Sprintf("%s[%d]", field, i)
		checks, ofPod := checksOf(e.ControlName)
		switch {
		case len(checks) == 0:
			return nil, unsupported(at+".controlName", "name one of the standard", "the control %q", e.ControlName)
		case e.RestrictedField != "" || len(e.Values) > 0:
			return nil, unsupported(at, "leave out all of the control, or write an exception by hand", "single fields or values of a control")
		case len(e.Images) == 0 && !ofPod:
			return nil, unsupported(at, "name the images", "a control of containers without images")
		}
		var containers *v1alpha1.ExceptionContainers
		if len(e.Images) > 0 {
			if containers, err = containersOf(at+".images", e.Images); err != nil {
				return nil, err
			}
		}
		for k := range checks {
			checks[k] = "podSecurity." + checks[k]
		}
		same := slices.IndexFunc(out, func(o exemption) bool { return reflect.DeepEqual(o.containers, containers) })
		if same < 0 {
			same = len(out)
			out = append(out, exemption{containers: containers})
		}
		out[same].checks = union(out[same].checks, checks...)
	}
	return out, nil
}

// from returns the exception from policies that are standards, for what matches.
func (e exemption) from(match v1alpha1.ExceptionMatch, standards ...string) v1alpha1.PolicyExceptionSpec {
	match.Containers = e.containers
	out := v1alpha1.PolicyExceptionSpec{Match: match}
	for _, name := range standards {
		out.Policies = append(out.Policies, v1alpha1.ExceptedPolicy{Name: name, Rules: e.checks})
	}
	return out
}

// exceptionsOf returns the exceptions from a policy that is a standard, where every configuration takes exceptions from.
func exceptionsOf(policy string, exempt []exemption) []*object {
	var specs []v1alpha1.PolicyExceptionSpec
	for _, e := range exempt {
		specs = append(specs, e.from(v1alpha1.ExceptionMatch{}, policy))
	}
	return namedExceptions(metav1.ObjectMeta{Name: joinName(policy, "exempt"), Namespace: exceptionNamespace}, specs)
}

// containersOf returns the containers that have an image like one of Kyverno's patterns.
func containersOf(field string, images []string) (*v1alpha1.ExceptionContainers, error) {
	var out v1alpha1.ExceptionContainers
	for i, text := range images {
		if text == "*" {
			return &v1alpha1.ExceptionContainers{Names: []string{"*"}}, nil
		}
		pattern, ok := imagePattern(text)
		if !ok {
			return nil, unsupported(fmt.Sprintf("%s[%d]", field, i), `write the registry, as in "registry.example/legacy/*"`, "the image %q", text)
		}
		out.Images = union(out.Images, pattern)
	}
	return &out, nil
}

// imagePattern returns a pattern that matches no other images than one of Kyverno's, whose "*" stands for any characters and which compares
// an image as it is written. It is false if there is none.
func imagePattern(text string) (string, bool) {
	last := text[strings.LastIndexByte(text, '/')+1:]
	name, _, _ := strings.Cut(last, ":")
	switch {
	case strings.Contains(text, "?"), strings.HasPrefix(text, "*") && !strings.HasPrefix(text, "*."), last == text && strings.Contains(name, ".") && strings.Contains(name, "*"):
		return "", false
	case last == "*":
		text += "*"
	case !strings.ContainsAny(last, "*:@"):
		text += ":latest"
	}
	_, err := image.ParsePattern(text)
	return text, err == nil
}
