package merge

import (
	"slices"
	"strings"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// The merge rules. What a template says about a field of a pod is put there if
// the pod says nothing, or nothing but what the API server puts in by default.
// Objects are merged member by member. Lists whose elements have a key are
// merged by it, other lists of which every element stands for itself are united,
// and every other list is one value. The pod's own elements keep their order,
// what is added comes behind them.
//
// They are not those of a strategic merge patch, which puts new elements in
// front, takes ports by number alone, leaves both value and valueFrom in an
// environment variable and replaces tolerations as a whole.

// Rule says how one field is merged.
type Rule struct {
	// mapKeys are the members by which the elements of a list are told apart, with
	// what the API server puts in where one is absent: "protocol=TCP".
	mapKeys []string
	// isOrdered says that an element can refer to those before it.
	isOrdered bool
	// IsSet says that the elements of a list stand for themselves.
	IsSet bool
	// IsAtomic says that an object, or an element with the same key, is one value;
	// otherwise it is merged member by member.
	IsAtomic bool
	// oneOf are members of an object that exclude each other: if the pod has
	// chosen, none is added.
	oneOf []string
	// maxItems is how many elements a list may have, if that is bounded.
	maxItems int
	// disjointFrom is the other list of a container that none of a list's paths may be
	// in.
	disjointFrom string
	// pair is the other of requests and limits: what the pod says about a
	// resource in one of them is not completed in the other.
	pair string
	// unique is a member that no two elements of a list may have alike.
	unique string
	// contradicts reports whether the API server refuses the object with a member.
	contradicts func(object rawjson.Value, name string, value rawjson.Value) bool
	// apiDefault is the value, as JSON, that the API server puts in where a pod's
	// author says nothing.
	apiDefault string
	Fields     map[string]*Rule
	// values is the rule for every member of an object whose names are not known.
	values *Rule
	// isQuantity says that the value is one, which can be written in many ways.
	isQuantity bool
	// clean returns the one way in which a key, or an element that stands for itself, is written: two texts can be one
	// directory, or one address.
	clean func(string) string
}

// PodRules are the rules for a pod's spec, without the lists of containers and volumes.
// ContainerRules are those for a container.
//
//nolint:gochecknoglobals // tables that nobody changes
var (
	listSet     = &Rule{IsSet: true}
	atomicField = &Rule{IsAtomic: true}
	handler     = &Rule{oneOf: []string{"exec", "grpc", "httpGet", "sleep", "tcpSocket"}}
	quantity    = &Rule{isQuantity: true}

	PodRules = &Rule{contradicts: contradictsNode, Fields: map[string]*Rule{
		"dnsPolicy":                     {apiDefault: `"ClusterFirst"`},
		"restartPolicy":                 {apiDefault: `"Always"`},
		"schedulerName":                 {apiDefault: `"default-scheduler"`},
		"serviceAccount":                {apiDefault: `"default"`},
		"serviceAccountName":            {apiDefault: `"default"`},
		"terminationGracePeriodSeconds": {apiDefault: `30`},
		"enableServiceLinks":            {apiDefault: `true`},
		"imagePullSecrets":              {mapKeys: []string{"name"}},
		"tolerations":                   listSet,
		"hostAliases":                   {mapKeys: []string{"ip"}, clean: CleanAddress, Fields: map[string]*Rule{"hostnames": listSet}},
		"readinessGates":                {mapKeys: []string{"conditionType"}},
		"schedulingGates":               {mapKeys: []string{"name"}},
		"resourceClaims":                {mapKeys: []string{"name"}, IsAtomic: true},
		"topologySpreadConstraints":     {mapKeys: []string{"topologyKey", "whenUnsatisfiable=DoNotSchedule"}, IsAtomic: true},
		"dnsConfig": {Fields: map[string]*Rule{
			"nameservers": {IsSet: true, maxItems: 3, clean: CleanAddress}, "searches": {IsSet: true, maxItems: 32}, "options": {mapKeys: []string{"name"}, IsAtomic: true},
		}},
		"overhead":  {values: quantity},
		"resources": {Fields: map[string]*Rule{"requests": {values: quantity}, "limits": {values: quantity}}},
		"securityContext": {Fields: map[string]*Rule{
			"supplementalGroups": listSet, "sysctls": {mapKeys: []string{"name"}, IsAtomic: true},
			"seccompProfile": atomicField, "appArmorProfile": atomicField,
		}},
		"affinity": {Fields: map[string]*Rule{
			// The terms that a node must meet are alternatives: uniting them
			// would widen what the pod's author has narrowed.
			"nodeAffinity":    {Fields: map[string]*Rule{"preferredDuringSchedulingIgnoredDuringExecution": listSet}},
			"podAffinity":     {Fields: map[string]*Rule{"preferredDuringSchedulingIgnoredDuringExecution": listSet, "requiredDuringSchedulingIgnoredDuringExecution": listSet}},
			"podAntiAffinity": {Fields: map[string]*Rule{"preferredDuringSchedulingIgnoredDuringExecution": listSet, "requiredDuringSchedulingIgnoredDuringExecution": listSet}},
		}},
	}}

	ContainerRules = &Rule{Fields: map[string]*Rule{
		"terminationMessagePath":   {apiDefault: `"/dev/termination-log"`},
		"terminationMessagePolicy": {apiDefault: `"File"`},
		"env":                      {mapKeys: []string{"name"}, IsAtomic: true, isOrdered: true},
		"envFrom":                  listSet,
		"ports":                    {mapKeys: []string{"containerPort", "protocol=TCP"}, IsAtomic: true, unique: "name"},
		"volumeMounts":             {mapKeys: []string{"mountPath"}, clean: CleanPath, IsAtomic: true, disjointFrom: "volumeDevices"},
		"volumeDevices":            {mapKeys: []string{"devicePath"}, clean: CleanPath, IsAtomic: true, disjointFrom: "volumeMounts"},
		"resizePolicy":             {mapKeys: []string{"resourceName"}, IsAtomic: true},
		"resources": {Fields: map[string]*Rule{
			"claims": {mapKeys: []string{"name"}, IsAtomic: true}, "requests": {pair: "limits", values: quantity}, "limits": {pair: "requests", values: quantity},
		}},
		"securityContext": {contradicts: contradictsPrivileges, Fields: map[string]*Rule{
			"capabilities":    {Fields: map[string]*Rule{"add": listSet, "drop": listSet}},
			"seccompProfile":  atomicField,
			"appArmorProfile": atomicField,
		}},
		"startupProbe":   handler,
		"readinessProbe": handler,
		"livenessProbe":  handler,
		"lifecycle":      {Fields: map[string]*Rule{"postStart": handler, "preStop": handler}},
	}}
)

// Field returns the rule for a field, or nil.
func (r *Rule) Field(name string) *Rule {
	if r == nil {
		return nil
	}
	if r.values != nil {
		return r.values
	}
	return r.Fields[name]
}

// excludes reports whether an object has another member of the choice than the one that
// is added.
func (r *Rule) excludes(object rawjson.Value, name string) bool {
	return r != nil && slices.Contains(r.oneOf, name) && slices.ContainsFunc(r.oneOf, func(other string) bool {
		kind := object.Get(other).Kind()
		return other != name && kind != rawjson.Invalid && kind != rawjson.Null
	})
}

// Outline returns how a field is merged, if it is without conditions on other fields, and if it is written in one way alone but for paths and
// addresses: the members by which the elements of its list are told apart, and the value, as JSON, that the API server puts in.
func (r *Rule) Outline() (keys []string, apiDefault string, ok bool) {
	if r == nil {
		return nil, "", true
	}
	ok = len(r.oneOf) == 0 && r.maxItems == 0 && r.pair == "" && r.unique == "" && r.contradicts == nil && r.values == nil && !r.isQuantity &&
		!slices.ContainsFunc(r.mapKeys, func(key string) bool { return strings.Contains(key, "=") })
	return r.mapKeys, r.apiDefault, ok
}

// IsMergedList reports whether a list is merged element by element.
func (r *Rule) IsMergedList() bool { return r != nil && (r.IsSet || len(r.mapKeys) > 0) }

// meaning returns one text for all elements of a list that Kubernetes or the kernel takes for one.
func (r *Rule) meaning(element rawjson.Value) string {
	switch {
	case r.clean == nil:
		return r.Identity(element)
	case r.IsSet:
		return r.clean(element.Text())
	default:
		return r.clean(element.Get(r.mapKeys[0]).Text())
	}
}

// isSame reports whether two elements with one meaning say the same.
func (r *Rule) isSame(a, b rawjson.Value) bool {
	return Equal(a, b) || r.clean != nil && !r.IsSet && Equal(RemoveMembers(a, r.mapKeys...), RemoveMembers(b, r.mapKeys...))
}

// Identity returns one text for all elements of a list that are one.
func (r *Rule) Identity(element rawjson.Value) string {
	if r.IsSet {
		return Canonical(element)
	}
	return r.Key(element)
}

// KeyNames returns the members by which the elements of a list are told apart, for
// people.
func (r *Rule) KeyNames() string {
	names := make([]string, len(r.mapKeys))
	for i, key := range r.mapKeys {
		names[i], _, _ = strings.Cut(key, "=")
	}
	return strings.Join(names, " and ")
}

func (r *Rule) equal(a, b rawjson.Value) bool {
	if r != nil && r.isQuantity {
		x, okX := ReadQuantity(a)
		y, okY := ReadQuantity(b)
		if okX && okY {
			return x.Cmp(y) == 0
		}
	}
	return Equal(a, b)
}

// contradictsNode reports whether the API server refuses a field of a pod's spec beside
// the others: what the pod shares with its node, and gates of a pod that is scheduled.
func contradictsNode(spec rawjson.Value, name string, value rawjson.Value) bool {
	switch name {
	case "shareProcessNamespace":
		return value.IsTrue() && spec.Get("hostPID").IsTrue()
	case "hostPID":
		return value.IsTrue() && spec.Get("shareProcessNamespace").IsTrue()
	case "hostUsers":
		return string(value) == "false" && (spec.Get("hostNetwork").IsTrue() || spec.Get("hostPID").IsTrue() || spec.Get("hostIPC").IsTrue())
	case "schedulingGates":
		return spec.Get("nodeName").Text() != ""
	case "securityContext":
		for _, sysctl := range value.Get("sysctls").Elements() {
			if strings.HasPrefix(sysctl.Get("name").Text(), "net") && spec.Get("hostNetwork").IsTrue() {
				return true
			}
		}
	}
	return false
}

// contradictsPrivileges reports whether the API server refuses a member of a
// securityContext beside the others: with allowPrivilegeEscalation: false a container is
// neither privileged nor has SYS_ADMIN.
func contradictsPrivileges(object rawjson.Value, name string, value rawjson.Value) bool {
	admin := func(capabilities rawjson.Value) bool {
		for _, capability := range capabilities.Get("add").Elements() {
			if capability.Is("SYS_ADMIN") || capability.Is("CAP_SYS_ADMIN") {
				return true
			}
		}
		return false
	}
	bound := string(object.Get("allowPrivilegeEscalation")) == "false"
	switch name {
	case "allowPrivilegeEscalation":
		return string(value) == "false" && (object.Get("privileged").IsTrue() || admin(object.Get("capabilities")))
	case "privileged":
		return bound && value.IsTrue()
	case "capabilities":
		return bound && admin(value)
	default:
		return false
	}
}
