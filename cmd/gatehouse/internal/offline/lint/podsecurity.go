package lint

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	podsecurityapi "k8s.io/pod-security-admission/api"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// newestStandard is the minor version of Kubernetes 1 whose Pod Security Standards
// are the newest that the library has.
const newestStandard = 37

// podSecurityVersion reports a version that is not known yet. Upstream uses the newest known one instead, so that an update would
// change the policy.
func podSecurityVersion(d document, spec *v1alpha1.PodSecurity) {
	if spec == nil || spec.Version == "" {
		return
	}
	version, err := podsecurityapi.ParseVersion(spec.Version)
	if err != nil {
		return // Compile reports it.
	}
	newest := podsecurityapi.MajorMinorVersion(1, newestStandard)
	if newest.Older(version) && !version.Latest() {
		d.warn(PodSecurityVersion, field.NewPath("spec", "podSecurity", "version"), "write "+newest.String()+" or latest",
			"%s is not known here yet, and means %s until it is", quoted(spec.Version), quoted(newest.String()))
	}
}
