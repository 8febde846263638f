package compile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// prepare makes what expressions are translated with.
func (t *translation) prepare(c *compilation) (err error) {
	if t.rewriting, err = newForTemplates(); err != nil {
		return err
	}
	t.env, err = environment.MustBaseEnvSet(version.MustParseMajorMinor(c.options.Kubernetes)).StoredExpressionsEnv().Extend(
		cel.Variable("object", cel.DynType), cel.Variable("variables", cel.DynType))
	return err
}

// decline finds what has no translation as a whole.
func (t *translation) decline() {
	for reason, is := range map[string]bool{
		"rollout: CEL cannot compute which workloads a percentage is":                                 t.spec.Rollout != nil,
		"another profile replaces it for a percentage of workloads":                                   t.ReplacedBy >= 0,
		"share: it reads what the pod's containers have":                                              len(t.Shares) > 0,
		"onSameName: " + string(t.OnSameName) + " has no translation":                                 t.OnSameName != v1alpha1.RefuseSameName,
		"podsThatEnd: Refuse has no translation":                                                      t.AppContainer != "" && t.PodsThatEnd == v1alpha1.RefusePod,
		"presets: a policy has params of one ConfigMap at most":                                       len(t.Presets) > 1,
		"template.metadata.annotations: those about AppArmor of a container are checked by Gatehouse": len(t.Constraints.Containers) > 0,
	} {
		if is {
			t.item.stay(reason)
		}
	}
	slices.Sort(t.item.Reasons)
	if t.OnConflict != v1alpha1.RefuseConflict {
		t.item.differ("a pod that the API server refuses with the profile, by Pod Security or its own checks, is refused, and not created without the profile")
	}
}

// wish returns what an annotation says: "yes", "no", "" or "invalid".
func (t *translation) wish(of string) string {
	var all []string
	for _, p := range t.all {
		all = append(all, p.Name, "-"+p.Name)
	}
	known := "!(n in " + names(all) + ")"
	if len(known) > maxExpression/2 {
		known = `n == ""`
		t.item.differ(v1alpha1.InjectAnnotation + " may name profiles that do not exist: there are too many to compare")
	}
	return fmt.Sprintf(`%s.?annotations[?%s].optMap(w, w == "true" ? "yes" : w == "false" ? "no" : [w.split(",").map(n, n.trim())].map(l,
l.exists(n, %s || "-" + n in l) ? "invalid" : %s in l ? "yes" : %s in l ? "no" : "")[0]).orValue("")`,
		of, quote(v1alpha1.InjectAnnotation), known, quote(t.Name), quote("-"+t.Name))
}

// selected returns the condition for pods that get the profile.
func (t *translation) selected() string {
	pod := t.define("podWish", t.wish("object.?metadata"))
	namespace := t.define("namespaceWish", t.wish("namespaceObject.metadata"))
	asked := []string{fmt.Sprintf(`(%s != "" ? %[1]s == "yes" : %s in ["", "invalid"] ? %t : %[2]s == "yes")`, pod, namespace, t.OptOut)}
	if t.HostNetwork == v1alpha1.SkipPod {
		asked = append(asked, "!object.spec.?hostNetwork.orValue(false)")
	}
	hostProcess := "?securityContext.?windowsOptions.?hostProcess.orValue(false)"
	asked = append(asked, "!object.spec."+hostProcess, "!"+container("c."+hostProcess))
	if len(t.ExcludedSystems) > 0 {
		asked = append(asked, fmt.Sprintf(`!(object.spec.?os.?name.orValue("") in %s)`, names(slices.Sorted(slices.Values(t.ExcludedSystems.UnsortedList())))))
	}
	if t.AppContainer != "" && t.PodsThatEnd == v1alpha1.SkipPod {
		asked = append(asked, `object.spec.?restartPolicy.orValue("Always") == "Always"`)
	}
	for i, condition := range t.spec.Match.MatchConditions {
		text, _ := t.expression(fmt.Sprintf("spec.match.matchConditions[%d]", i), template.ForCEL(condition.Expression))
		asked = append(asked, "("+text+")")
	}
	return strings.Join(asked, " &&\n")
}

// duration is the form of time.ParseDuration.
const duration = `^[-+]?(0|(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// parameters declares the values of the parameters, and finds those that are invalid.
func (t *translation) parameters() {
	var known []string
	for i := range t.spec.Parameters {
		p := &t.spec.Parameters[i]
		key := t.AnnotationPrefix + p.Name
		known = append(known, key)
		text := fmt.Sprintf(`object.?metadata.?annotations[?%s].or(namespaceObject.metadata.?annotations[?%[1]s])`, quote(key))
		given := "true"
		if p.Default != nil {
			text += ".orValue(" + quote(p.Default.Text) + ")"
		} else {
			given, text = text+".hasValue()", text+`.orValue("")`
		}
		x := t.define("text_"+p.Name, "string("+text+")")
		value, valid := x, []string{given}
		bounds := func(of string) {
			if p.Minimum != nil {
				valid = append(valid, fmt.Sprintf(of, ">=", p.Minimum.Text))
			}
			if p.Maximum != nil {
				valid = append(valid, fmt.Sprintf(of, "<=", p.Maximum.Text))
			}
		}
		strict := func(x string) (valid []string) {
			valid = []string{fmt.Sprintf(`!%s.matches("\\p{Cc}")`, x)}
			if p.Type != v1alpha1.EnumParameter {
				most := int32(1024) // the default of MaxLength
				if p.MaxLength != nil {
					most = *p.MaxLength
				}
				valid = append(valid, fmt.Sprintf("%s.size() <= %d", x, most))
			}
			if len(p.Enum) > 0 {
				valid = append(valid, x+" in "+names(p.Enum))
			}
			if p.Pattern != "" {
				valid = append(valid, fmt.Sprintf("%s.matches(%s)", x, quote(`\A(?:`+p.Pattern+`)\z`)))
			}
			return valid
		}
		switch p.Type {
		case v1alpha1.IntegerParameter, v1alpha1.PortParameter:
			value = "int(" + x + ")"
			valid = append(valid, x+`.matches("^[-+]?[0-9]{1,18}$")`)
			if p.Type == v1alpha1.PortParameter {
				valid = append(valid, value+" >= 1", value+" <= 65535")
			}
			bounds(value + " %s %s")
		case v1alpha1.BooleanParameter:
			value = x + ` == "true"`
			valid = append(valid, x+` in ["true", "false"]`)
		case v1alpha1.QuantityParameter:
			valid = append(valid, x+".size() <= 64", "isQuantity("+x+")")
			bounds("quantity(" + x + ").compareTo(quantity(\"%[2]s\")) %[1]s 0")
		case v1alpha1.DurationParameter:
			valid = append(valid, x+".size() <= 64", x+".matches("+quote(duration)+")")
			bounds("duration(" + x + ") %s duration(\"%s\")")
		case v1alpha1.ListParameter:
			most := int32(64) // the default of MaxItems
			if p.MaxItems != nil {
				most = *p.MaxItems
			}
			value = fmt.Sprintf(`%s.trim() == "" ? [] : %[1]s.split(",").map(i, i.trim())`, x)
			items := t.define("items_"+p.Name, value)
			value = items
			valid = append(valid, fmt.Sprintf("%s.size() <= %d", items, most), fmt.Sprintf(`%s.all(i, i != "" && %s)`, items, strings.Join(strict("i"), " && ")))
		case v1alpha1.StringParameter, v1alpha1.EnumParameter:
			valid = append(valid, strict(x)...)
		}
		ok := strings.Join(valid, " && ")
		if p.OnInvalid == v1alpha1.SkipInvalid {
			t.skips = append(t.skips, "!("+ok+")")
		} else {
			t.refusals = append(t.refusals, fmt.Sprintf("%s ? [] : [%s]", ok, quote("annotation "+key+": the parameter is missing or not what is allowed")))
		}
		t.define("param_"+p.Name, value)
	}
	t.refusals = append(t.refusals, fmt.Sprintf(`object.?metadata.?annotations.orValue({}).exists(k, k.startsWith(%s) && !(k in %s)) ? [%s] : []`,
		quote(t.AnnotationPrefix), names(known), quote("an annotation that begins with "+t.AnnotationPrefix+" names no parameter")))
}

// read reads a part of the profile in the form in which the API server writes it.
func (t *translation) read(text []byte, as reflect.Type) (out any) {
	decoder := json.NewDecoder(bytes.NewReader(merge.Canonicalize(text, as)))
	decoder.UseNumber()
	if err := decoder.Decode(&out); err != nil {
		t.item.stay(err.Error())
	}
	return out
}

// values returns the operations that add the template, and finds what is in its way.
func (t *translation) values() (ops []string) {
	var spec map[string]json.RawMessage
	if len(t.spec.Template.Spec.Raw) > 0 {
		if err := json.Unmarshal(t.spec.Template.Spec.Raw, &spec); err != nil {
			t.item.stay(err.Error())
		}
	}
	for l := range podtext.NumLists {
		var elements []json.RawMessage
		_ = json.Unmarshal(spec[l.String()], &elements) // absent and null are none
		delete(spec, l.String())
		if len(elements) > 0 {
			ops = append(ops, fmt.Sprintf(`has(object.spec.%s) ? [] : [JSONPatch{op: "add", path: %s, value: []}]`, l, quote(l.Pointer())))
		}
		for i, text := range elements {
			if l == podtext.Volumes {
				ops = append(ops, t.volume(i, text))
			} else {
				ops = append(ops, t.container(l, i, text))
			}
		}
	}
	at := target{ops: &ops, conflict: func(condition, message string) { t.conflict(condition, message) }}
	for _, m := range []struct {
		name string
		of   map[string]string
	}{{"labels", t.spec.Template.Metadata.Labels}, {"annotations", t.spec.Template.Metadata.Annotations}} {
		if len(m.of) > 0 {
			value := map[string]any{}
			for k, v := range m.of {
				value[k] = v
			}
			t.merge(at.field("object.?metadata", "/metadata", m.name), value, nil)
		}
	}
	rest, _ := json.Marshal(spec) //nolint:errchkjson // it was read
	fields, _ := t.read(rest, reflect.TypeFor[corev1.PodSpec]()).(map[string]any)
	for _, name := range sortedKeys(fields) {
		switch name {
		case "shareProcessNamespace", "hostUsers", "schedulingGates":
			t.item.stay("template.spec." + name + " has no translation")
		default:
			t.merge(at.field("object.?spec", "/spec", name), fields[name], merge.PodRules.Field(name))
		}
	}
	if security, _ := fields["securityContext"].(map[string]any); security["runAsUser"] != nil || security["runAsNonRoot"] != nil {
		t.item.differ("a container of the pod that with template.spec.securityContext runs as root and must not is not refused")
	}
	return ops
}

// conflict notes a value of the pod that is in the way. A pod that keeps it gets the rest.
func (t *translation) conflict(condition, message string) {
	if t.OnConflict != v1alpha1.KeepConflict {
		t.conflicts = append(t.conflicts, fmt.Sprintf("(%s) ? [%s] : []", condition, quote(message)))
	}
}

// volume returns the operation that adds a volume, unless the pod has an equal one.
func (t *translation) volume(i int, text json.RawMessage) string {
	name, value := t.Names[podtext.Volumes][i], t.read(text, reflect.TypeFor[corev1.Volume]())
	differs := ""
	var typed corev1.Volume
	if json.Unmarshal(text, &typed) == nil && !strings.Contains(string(text), "${") {
		defaults.Volume(&typed)
		whole, _ := json.Marshal(&typed) //nolint:errchkjson // it was read
		value = t.read(whole, reflect.TypeFor[corev1.Volume]())
	}
	literal, _ := t.literal("template.spec.volumes", value)
	variable := t.define(fmt.Sprintf("volumes_%d", i), literal)
	if differs = "v != " + variable; strings.Contains(string(text), "${") {
		differs = "!(" + t.agrees("optional.of(v)", value) + ")"
	}
	t.conflict(fmt.Sprintf("%s.exists(v, v.name == %s && %s)", list(podtext.Volumes), quote(name), differs), "the pod has another volume "+name)
	return fmt.Sprintf(`%s.exists(v, v.name == %s) ? [] : [JSONPatch{op: "add", path: "/spec/volumes/-", value: %s}]`, list(podtext.Volumes), quote(name), variable)
}

// agrees returns the condition for a value that has all that a value of the profile says.
func (t *translation) agrees(own string, value any) string {
	members, isObject := value.(map[string]any)
	if !isObject || len(members) == 0 {
		literal, _ := t.literal("template.spec.volumes", value)
		return own + " == optional.of(dyn(" + literal + "))"
	}
	var conditions []string
	for _, name := range sortedKeys(members) {
		conditions = append(conditions, t.agrees(own+".?"+name, members[name]))
	}
	return strings.Join(conditions, " && ")
}

// container returns the operation that adds a container at its place: in front of the pod's own or behind them, and among those of other
// profiles in their order.
func (t *translation) container(l podtext.List, i int, text json.RawMessage) string {
	e := &t.Elements[l][i]
	value, _ := t.read(text, reflect.TypeFor[corev1.Container]()).(map[string]any)
	literal, _ := t.literal(fmt.Sprintf("template.spec.%s[%d]", l, i), value)
	variable := t.define(fmt.Sprintf("%s_%d", l, i), literal)
	there, other := "variables."+l.String(), podtext.InitContainers+podtext.Containers-l
	present := quote(e.Name) + " in " + there
	t.refusals = append(t.refusals, fmt.Sprintf(`%s in variables.%s || %s.exists(c, c.name == %[1]s && ["image", "command", "args", "workingDir", "restartPolicy", "securityContext"].exists(k, c[?k] != %[4]s[?k])) ? [%[5]s] : []`,
		quote(e.Name), other, list(l), variable, quote("the pod has a container "+e.Name+" of its own")))
	t.ports(l, e.Name, variable, value)
	security, _ := value["securityContext"].(map[string]any)
	root := []string{"!(" + present + ")"}
	for name, value := range map[string]string{"runAsNonRoot": "true", "runAsUser": "0"} {
		if own := security[name]; own == nil {
			root = append(root, fmt.Sprintf("object.spec.?securityContext.?%s == optional.of(%s)", name, value))
		} else if fmt.Sprint(own) != value {
			root = nil
			break
		}
	}
	if slices.Sort(root); len(root) > 0 {
		t.conflicts = append(t.conflicts, fmt.Sprintf("(%s) ? [%s] : []", all(root...), quote("container "+e.Name+" would run as root and must not")))
	}
	var absent []string
	for _, name := range t.Names[l][:i] {
		absent = append(absent, fmt.Sprintf("!(%s in %s)", quote(name), there))
	}
	beside, at := slices.Clone(t.beside[l]), there+".size()"
	switch {
	case !t.First[l] && len(beside) > 0:
		at = fmt.Sprintf("([%s.size()] + %[1]s.transformList(i, n, n in %s, i)).min()", there, names(beside))
	case t.First[l]:
		if beside, at = append(beside, t.Names[l][:i]...), "0"; len(beside) > 0 {
			at = fmt.Sprintf("([0] + %s.transformList(i, n, n in %s, i + 1)).max()", there, names(beside))
		}
	}
	if len(absent) > 0 {
		at += fmt.Sprintf(" + [%s].filter(b, b).size()", strings.Join(absent, ", "))
	}
	return fmt.Sprintf(`%s ? [] : [JSONPatch{op: "add", path: %s + string(%s), value: %s}]`, present, quote(l.Pointer()+"/"), at, variable)
}

// ports finds ports of the pod that are those of a container that is added. A plain init container has ended before containers start.
func (t *translation) ports(l podtext.List, name, variable string, value map[string]any) {
	ports, _ := value["ports"].([]any)
	if len(ports) == 0 || !slices.ContainsFunc(t.Elements[l], func(e profile.Element) bool { return e.Name == name && e.RunsWithOthers(l) }) {
		return
	}
	if t.OnConflict == v1alpha1.KeepConflict {
		t.item.stay("onConflict: Keep leaves out ports that the pod has")
	}
	for _, p := range ports {
		if port, _ := p.(map[string]any); port["hostIP"] != nil {
			t.item.stay("a port with hostIP has no translation")
		}
	}
	beside := ""
	if l == podtext.Containers {
		beside = fmt.Sprintf(` && (c.?restartPolicy.orValue("") == "Always" || c.name in variables.%s)`, podtext.Containers)
	}
	t.conflict(fmt.Sprintf(`!(%s in variables.%s) && %s`, quote(name), l, container(fmt.Sprintf(`!(c.name in %s)%s && c.?ports.orValue([]).exists(p, %s.ports.exists(q,
q.?protocol.orValue("TCP") == p.?protocol.orValue("TCP") && (q.containerPort == p.containerPort || q.?hostPort.orValue(0) != 0 && q.?hostPort == p.?hostPort)))`,
		names(append(slices.Clip(t.others[l]), name)), beside, variable))), "a container of the pod has a port of container "+name)
}

// users finds containers that run as a user of the profile's own.
func (t *translation) users() {
	others := slices.Concat(t.others[podtext.InitContainers], t.others[podtext.Containers])
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for i, name := range t.Names[l] {
			if !slices.Contains(t.DistinctUsers, name) {
				continue
			}
			if len(others) > 0 {
				t.item.differ("distinctUsers: users of other profiles' containers are not compared")
			}
			t.conflict(fmt.Sprintf(`!(%s in variables.%s) && %s`, quote(name), l, container(fmt.Sprintf(
				`!(c.name in %s) && c.?securityContext.?runAsUser.or(object.spec.?securityContext.?runAsUser) == optional.of(dyn(variables.%s_%d.securityContext.runAsUser))`,
				names(append(slices.Clip(others), name)), l, i))), "a container of the pod runs as the user of container "+name)
		}
	}
}

// app returns the operations that add to the pod's own containers, for each entry.
func (t *translation) app() (sets [][]string) {
	for i := range t.Additions {
		a := &t.Additions[i]
		var set []string
		value, _ := t.read(a.Template.Raw, reflect.TypeFor[corev1.Container]()).(map[string]any)
		for l := podtext.InitContainers; l <= podtext.Containers; l++ {
			if l == podtext.InitContainers && !a.InitContainers {
				continue
			}
			isApp := []string{fmt.Sprintf("!(c.name in %s)", names(slices.Concat(t.Names[l], t.others[l], a.Except)))}
			if len(a.Names) > 0 {
				isApp = append(isApp, "c.name in "+names(a.Names))
			}
			var ops []string
			for _, name := range sortedKeys(value) {
				at := target{ops: &ops}
				if name == "volumeMounts" || name == "volumeDevices" {
					at.conflict = func(condition, message string) {
						t.conflict(fmt.Sprintf("%s.exists(c, %s && %s)", list(l), all(isApp...), condition), "a container of the pod: "+message)
					}
				}
				at = at.field("optional.of(c)", "", name)
				at.prefix, at.name = fmt.Sprintf(`%s + string(i)`, quote(l.Pointer()+"/")), fmt.Sprintf("appContainers[%d].template.%s", i, name)
				t.merge(at, value[name], merge.ContainerRules.Field(name))
			}
			if len(ops) > 0 {
				set = append(set, fmt.Sprintf("%s.transformList(i, c, %s, %s).flatten()", list(l), all(isApp...), flat(ops)))
			}
		}
		sets = append(sets, set)
	}
	return sets
}

// target is where a value of the profile goes.
type target struct {
	// own is the value of the pod, a CEL optional, and parent that of what it is in.
	own, parent string
	// prefix is CEL and suffix a text: the JSON pointer is both together. name is for people.
	prefix, suffix, name string
	ops                  *[]string
	// conflict notes another value, and is nil if the pod keeps its own in silence.
	conflict func(condition, message string)
}

// identifier is the form of the names that CEL has behind a dot.
var identifier = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]*$`)

// field returns the target for a member of a value.
func (t target) field(own, pointer, name string) target {
	t.parent, t.own, t.suffix = own, own+".?"+name, pointer+"/"+merge.Escape(name)
	if !identifier.MatchString(name) || name == "in" {
		t.own = own + "[?" + quote(name) + "]"
	}
	t.name = strings.TrimPrefix(t.name+"."+name, ".")
	return t
}

// add adds an operation under a condition.
func (t *target) add(condition, op, suffix, value string) {
	path := quote(t.suffix + suffix)
	if t.prefix != "" {
		path = t.prefix + " + " + path
	}
	*t.ops = append(*t.ops, fmt.Sprintf("%s ? [JSONPatch{op: %s, path: %s, value: %s}] : []", condition, quote(op), path, value))
}

// merge adds the operations by which a value is merged into the pod, as its rule says.
func (t *translation) merge(at target, value any, r *merge.Rule) {
	keys, apiDefault, ok := r.Outline()
	literal, kind := t.literal(at.name, value)
	if !ok || kind == optionalResult {
		t.item.stay(at.name + " has no translation")
		return
	}
	at.add(fmt.Sprintf("%s.hasValue() && !%s.hasValue()", at.parent, at.own), "add", "", literal)
	members, isObject := value.(map[string]any)
	elements, isList := value.([]any)
	switch {
	case isObject && (r == nil || !r.IsAtomic):
		for _, name := range sortedKeys(members) {
			t.merge(at.field(at.own, at.suffix, name), members[name], r.Field(name))
		}
	case isList && r.IsMergedList():
		for _, element := range elements {
			text, _ := t.literal(at.name, element)
			same := []string{"e == dyn(" + text + ")"}
			if len(keys) > 0 {
				same = nil
			}
			object, _ := element.(map[string]any)
			for _, key := range keys {
				is, _ := t.literal(at.name, object[key])
				same = append(same, fmt.Sprintf("e.?%s == optional.of(%s)", key, is))
			}
			at.add(fmt.Sprintf("%s.hasValue() && !%[1]s.value().exists(e, %s)", at.own, all(same...)), "add", "/-", text)
			switch {
			case len(keys) == 0 || len(object) == len(keys):
			case !r.IsAtomic:
				t.item.stay(at.name + " has no translation")
			case at.conflict != nil:
				at.conflict(fmt.Sprintf("%s.orValue([]).exists(e, %s && e != dyn(%s))", at.own, all(same...), text), "another entry of "+at.name)
			}
		}
	default:
		other := fmt.Sprintf("%s.hasValue() && %[1]s.value() != dyn(%s)", at.own, literal)
		if apiDefault != "" {
			at.add(other+" && "+at.own+".value() == "+apiDefault, "replace", "", literal)
			other += " && " + at.own + ".value() != " + apiDefault
		}
		if at.conflict != nil {
			at.conflict(other, "another value of "+at.name)
		}
	}
}
