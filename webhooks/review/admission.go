package review

import (
	"bytes"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

const admissionV1 = "admission.k8s.io/v1"

// DecodeAdmission reads an AdmissionReview v1 from its JSON text in one pass.
// The objects in it stay raw and share the memory of body; everything else is
// copied.
//
// It requires apiVersion and kind, a request and its UID, and refuses members
// that occur twice in the review or its request. Names are matched exactly and
// unknown members are ignored, as the API server's own decoder does. The error
// names the member, never its value.
func DecodeAdmission(body []byte) (admission.Request, error) {
	var request admission.Request
	_, err := decodeAdmission(make([]rawjson.Member, 0, maxMembers), body, &request.AdmissionRequest)
	return request, err
}

// decodeAdmission is DecodeAdmission that also counts the values in the body.
func decodeAdmission(room []rawjson.Member, body []byte, into *admissionv1.AdmissionRequest) (int, error) {
	apiVersion, request, values, err := envelope(room, body, "AdmissionReview", "request")
	if err != nil {
		return values, err
	}
	if apiVersion != admissionV1 {
		return values, fmt.Errorf("apiVersion: only %q is spoken here (hint: set admissionReviewVersions: [v1] in the webhook configuration)", admissionV1)
	}

	d := reader{prefix: "request."}
	for _, m := range request {
		switch v := m.Value; string(m.Name) {
		case `"uid"`:
			into.UID = types.UID(d.text("", "uid", v))
		case `"kind"`:
			d.kind("kind", v, &into.Kind)
		case `"resource"`:
			d.resource("resource", v, &into.Resource)
		case `"subResource"`:
			into.SubResource = d.text("", "subResource", v)
		case `"requestKind"`:
			if v.Kind() != rawjson.Null {
				into.RequestKind = new(metav1.GroupVersionKind)
				d.kind("requestKind", v, into.RequestKind)
			}
		case `"requestResource"`:
			if v.Kind() != rawjson.Null {
				into.RequestResource = new(metav1.GroupVersionResource)
				d.resource("requestResource", v, into.RequestResource)
			}
		case `"requestSubResource"`:
			into.RequestSubResource = d.text("", "requestSubResource", v)
		case `"name"`:
			into.Name = d.text("", "name", v)
		case `"namespace"`:
			into.Namespace = d.text("", "namespace", v)
		case `"operation"`:
			into.Operation = admissionv1.Operation(d.text("", "operation", v))
		case `"userInfo"`:
			d.user("userInfo", v, &into.UserInfo)
		case `"object"`:
			d.object("object", v, &into.Object)
		case `"oldObject"`:
			d.object("oldObject", v, &into.OldObject)
		case `"options"`:
			d.object("options", v, &into.Options)
		case `"dryRun"`:
			into.DryRun = d.boolean("dryRun", v)
		}
	}
	switch {
	case d.err != nil:
		return values, d.err
	case into.UID == "":
		return values, required("request.uid")
	case into.Resource.Resource == "":
		return values, required("request.resource")
	case into.Kind.Kind == "":
		return values, required("request.kind")
	}
	switch into.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return values, nil
	default:
		return values, fmt.Errorf("request.operation: must be CREATE, UPDATE, DELETE or CONNECT")
	}
}

// AppendAdmission appends the AdmissionReview that answers the request with
// this UID. It stamps UID, kind and patch type, and bounds warnings, audit
// annotations, the message and the causes of a refusal so that the API server
// drops none of them.
//
// The error says that a patch value cannot be written as JSON; dst is returned
// as it was.
func AppendAdmission(dst []byte, uid types.UID, response *admission.Response) ([]byte, error) {
	start := len(dst)
	dst = append(dst, `{"kind":"AdmissionReview","apiVersion":"`+admissionV1+`","response":{"uid":`...)
	dst = rawjson.AppendString(dst, string(uid))
	dst = append(dst, `,"allowed":`...)
	dst = appendBool(dst, response.Allowed)
	// A refusal carries no patch: the API server would not apply it.
	if response.Allowed && len(response.Patches) > 0 {
		var err error
		if dst, err = appendPatch(dst, response.Patches); err != nil {
			return dst[:start], err
		}
	}
	if !response.Allowed {
		dst = appendStatus(dst, response.Result)
	}
	dst = appendWarnings(dst, response.Warnings)
	dst = appendAudit(dst, response.AuditAnnotations)
	return append(dst, "}}"...), nil
}

// reader takes the members of a request and keeps the first error.
type reader struct {
	prefix string
	err    error
}

// fail notes that the member name, of the object called of if that is not the
// request itself, is not what it must be. Names are joined here and not before,
// because a good review needs none.
func (d *reader) fail(of, name, want string) {
	if d.err != nil {
		return
	}
	if of != "" && name != "" {
		of += "."
	}
	d.err = fmt.Errorf("%s%s%s: must be %s", d.prefix, of, name, want)
}

// text takes a string. Null is an absent string, as everywhere in the API.
func (d *reader) text(of, name string, v rawjson.Value) string {
	switch v.Kind() {
	case rawjson.String:
		return intern(v)
	case rawjson.Null:
		return ""
	default:
		d.fail(of, name, "a string")
		return ""
	}
}

func (d *reader) boolean(name string, v rawjson.Value) *bool {
	switch v.Kind() {
	case rawjson.Bool:
		b := v.IsTrue()
		return &b
	case rawjson.Null:
		return nil
	default:
		d.fail("", name, "a boolean")
		return nil
	}
}

func (d *reader) object(name string, v rawjson.Value, into *runtime.RawExtension) {
	switch v.Kind() {
	case rawjson.Object:
		into.Raw = v
	case rawjson.Null:
	default:
		d.fail("", name, "an object")
	}
}

func (d *reader) members(of, name string, v rawjson.Value) rawjson.Value {
	switch v.Kind() {
	case rawjson.Object:
		if key, dup := v.DuplicateKey(); dup {
			d.fail(of, name, fmt.Sprintf("written with each member once, but %q occurs twice", clip(key, 64)))
		}
		return v
	case rawjson.Null:
		return nil
	default:
		d.fail(of, name, "an object")
		return nil
	}
}

// unknown takes a member of an object whose member names are known, but not this
// one. An escape could hide one of them.
func (d *reader) unknown(of string, key rawjson.Value) {
	if bytes.IndexByte(key, '\\') >= 0 {
		d.fail("", of, "written without escapes in its members' names")
	}
}

func (d *reader) kind(name string, v rawjson.Value, into *metav1.GroupVersionKind) {
	into.Group, into.Version, into.Kind = d.qualified(name, "kind", v)
}

func (d *reader) resource(name string, v rawjson.Value, into *metav1.GroupVersionResource) {
	into.Group, into.Version, into.Resource = d.qualified(name, "resource", v)
}

// qualified takes a group, a version and what the member last says is in them.
func (d *reader) qualified(name, last string, v rawjson.Value) (group, version, value string) {
	for key, member := range d.members("", name, v).Members() {
		switch string(key[1 : len(key)-1]) {
		case "group":
			group = d.text(name, "group", member)
		case "version":
			version = d.text(name, "version", member)
		case last:
			value = d.text(name, last, member)
		default:
			d.unknown(name, key)
		}
	}
	return group, version, value
}

func (d *reader) user(name string, v rawjson.Value, into *authenticationv1.UserInfo) {
	for key, value := range d.members("", name, v).Members() {
		switch string(key) {
		case `"username"`:
			into.Username = d.text(name, "username", value)
		case `"uid"`:
			into.UID = d.text(name, "uid", value)
		case `"groups"`:
			into.Groups = d.texts(name, "groups", value)
		case `"extra"`:
			extra := d.members(name, "extra", value)
			if extra.Len() == 0 {
				continue
			}
			into.Extra = make(map[string]authenticationv1.ExtraValue)
			for key, value := range extra.Members() {
				into.Extra[key.Text()] = d.texts(name, "extra", value)
			}
		default:
			d.unknown(name, key)
		}
	}
}

func (d *reader) texts(of, name string, v rawjson.Value) []string {
	switch v.Kind() {
	case rawjson.Array:
		out := make([]string, 0, v.Len()) // not nil: an empty list is not null
		for _, element := range v.Elements() {
			out = append(out, d.text(of, name, element))
		}
		return out
	case rawjson.Null:
		return nil
	default:
		d.fail(of, name, "an array of strings")
		return nil
	}
}

// intern is Text, which copies, but for the words that nearly every review
// holds.
func intern(v rawjson.Value) string {
	switch string(v) {
	case `""`:
		return ""
	case `"v1"`:
		return "v1"
	case `"apps"`:
		return "apps"
	case `"Pod"`:
		return "Pod"
	case `"pods"`:
		return "pods"
	case `"CREATE"`:
		return "CREATE"
	case `"UPDATE"`:
		return "UPDATE"
	case `"DELETE"`:
		return "DELETE"
	case `"system:authenticated"`:
		return "system:authenticated"
	case `"system:serviceaccounts"`:
		return "system:serviceaccounts"
	case `"system:masters"`:
		return "system:masters"
	default:
		return v.Text()
	}
}
