package replay

import (
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// maxName bounds the names in a Subject, in bytes. Those of the API are shorter.
const maxName = 512

func short(name string) string { return truncate.Bytes(name, maxName) }

// SubjectOf returns what a review is about. Of a request that cannot be read, little is known.
func SubjectOf(r *record.Review) Subject { return newItem(new(Source), nil, r).Subject() }

// Subject returns what the review is about.
func (i *Item) Subject() Subject {
	out := Subject{
		Recording: i.Source.Name, ID: short(i.Review.ID), Time: i.Review.Time, Endpoint: short(i.Review.Endpoint),
	}
	if t := i.Review.Token; t != nil {
		out.Kind, out.Name, out.User = "TokenReview", short(t.ID), short(rawjson.Value(i.Review.Response).Get("status", "user", "username").Text())
		out.Workload = out.Kind + "/" + out.Name
		return out
	}
	if i.isAccess() {
		out.setAccess(i)
		return out
	}
	r := &i.request.AdmissionRequest
	out.User, out.Operation, out.Namespace = short(r.UserInfo.Username), string(r.Operation), short(r.Namespace)
	out.Kind = short(r.Kind.Kind)
	if r.Kind.Group != "" {
		out.Kind = short(r.Kind.Kind + "." + r.Kind.Group)
	}
	out.SubResource = short(r.SubResource)
	out.DryRun = r.DryRun != nil && *r.DryRun
	out.Name = short(nameOf(&i.request))
	out.setWorkload(&i.request)
	return out
}

// objectOf returns the object of a request, or that before it.
func objectOf(r *admission.Request) rawjson.Value {
	if len(r.Object.Raw) > 0 && r.Operation != admissionv1.Connect {
		return r.Object.Raw
	}
	return r.OldObject.Raw
}

// nameOf returns the name of the object, or its generateName with an asterisk.
func nameOf(r *admission.Request) string {
	if r.Name != "" {
		return r.Name
	}
	metadata := objectOf(r).Get("metadata")
	if name := metadata.Get("name").Text(); name != "" {
		return name
	}
	if name := metadata.Get("generateName").Text(); name != "" {
		return name + "*"
	}
	return ""
}

// setWorkload sets the object that people know. Controllers put names of their own behind those of
// workloads: owner references and labels name the workload.
func (s *Subject) setWorkload(r *admission.Request) {
	kind, _, _ := strings.Cut(s.Kind, ".")
	name := strings.TrimSuffix(strings.TrimSuffix(s.Name, "*"), "-")
	if owner, workload, ok := podtext.ControllerOf(objectOf(r).Get("metadata")); ok {
		kind, name = owner.Kind, workload
	}
	s.Workload = short(kind + "/" + name)
}
