package rules

import (
	"context"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// of returns a rule for structs.
func of[T any](check func(c *checker, path string, v *T)) rule {
	return func(c *checker, path string, v reflect.Value) {
		if t, ok := reflect.TypeAssert[*T](v.Addr()); ok {
			check(c, path, t)
		}
	}
}

// all returns a rule of several.
func all(rules ...rule) rule {
	return func(c *checker, path string, v reflect.Value) {
		for _, r := range rules {
			r(c, path, v)
		}
	}
}

// required returns a rule for a text that must not be empty and obeys other rules.
func required(others ...rule) rule {
	return func(c *checker, path string, v reflect.Value) {
		if v.IsZero() {
			c.error(path, "a value is required")
			return
		}
		all(others...)(c, path, v)
	}
}

// optional returns a rule for a value that obeys another rule unless it is empty.
func optional(other rule) rule {
	return func(c *checker, path string, v reflect.Value) {
		if !v.IsZero() {
			other(c, path, v)
		}
	}
}

// some is a rule for a list or a map that must not be empty. What a rule gets of a list are its elements, so that it stands at the struct.
func (c *checker) some(path string, n int) {
	if n == 0 {
		c.error(path, "at least one is required")
	}
}

// valid returns a rule for a text about which a function of the API server's library has nothing to say.
func valid(check func(string) []string) rule {
	return func(c *checker, path string, v reflect.Value) { c.messages(path, v.String(), check(v.String())) }
}

// oneOf returns a rule for a text that is one of these, or empty, which is the default.
func oneOf[T ~string](allowed ...T) rule {
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	return func(c *checker, path string, v reflect.Value) {
		if message, hint := OneOf(v.String(), words...); message != "" && !c.placeholder(path) {
			c.report(path, hint, message)
		}
	}
}

func atLeast(least int64) rule {
	return func(c *checker, path string, v reflect.Value) {
		if v.Int() < least {
			c.invalid(path, `"%d" is too low: must be %d or more`, v.Int(), least)
		}
	}
}

func atMost(most int64) rule {
	return func(c *checker, path string, v reflect.Value) {
		if v.Int() > most {
			c.invalid(path, `"%d" is too high: must be %d or less`, v.Int(), most)
		}
	}
}

func within(least, most int64) rule {
	return func(c *checker, path string, v reflect.Value) {
		if v.Int() < least || v.Int() > most {
			c.invalid(path, `"%d" is out of range: must be %d to %d`, v.Int(), least, most)
		}
	}
}

// keyed returns a rule for a map to texts: one for its keys, and one for its values, which may be secret without one.
func keyed(key, value func(string) []string) rule {
	return func(c *checker, path string, v reflect.Value) {
		for _, k := range slices.SortedFunc(slices.Values(v.MapKeys()), keyOrder) {
			at := strict.Member(path, k.String())
			for _, message := range key(k.String()) {
				c.error(at, "the key is invalid: %s", message)
			}
			if value != nil {
				c.messages(at, v.MapIndex(k).String(), value(v.MapIndex(k).String()))
			}
		}
	}
}

func labels(c *checker, path string, v reflect.Value) {
	keyed(content.IsLabelKey, content.IsLabelValue)(c, path, v)
}

// The letters of an annotation's key may be of either case.
func annotations(c *checker, path string, v reflect.Value) {
	keyed(func(key string) []string { return content.IsLabelKey(strings.ToLower(key)) }, nil)(c, path, v)
}

// formats are those that markers name.
//
//nolint:gochecknoglobals // a table that nobody changes
var formats = map[string]func(string) []string{
	"k8s-short-name":                    of1(validate.ShortName[string]),
	"k8s-long-name":                     of1(validate.LongName[string]),
	"k8s-long-name-caseless":            of1(validate.LongNameCaseless[string]), //nolint:staticcheck // the API server uses it for older kinds
	"k8s-label-key":                     of1(validate.LabelKey[string]),
	"k8s-prefixed-label-key":            of1(validate.PrefixedLabelKey[string]),
	"k8s-label-value":                   of1(validate.LabelValue[string]),
	"k8s-path-segment-name":             of1(validate.PathSegmentName[string]),
	"k8s-uuid":                          of1(validate.UUID[string]),
	"k8s-resource-pool-name":            of1(validate.ResourcePoolName[string]),
	"k8s-extended-resource-name":        of1(validate.ExtendedResourceName[string]),
	"k8s-resource-fully-qualified-name": of1(validate.ResourceFullyQualifiedName[string]),
}

// of1 returns a validation of the API server as a function of a text.
func of1(check func(context.Context, operation.Operation, *field.Path, *string, *string) field.ErrorList) func(string) []string {
	return func(text string) []string {
		return details(check(context.Background(), operation.Operation{}, nil, &text, nil))
	}
}

func details(errs field.ErrorList) (messages []string) {
	for _, err := range errs {
		messages = append(messages, err.Detail)
	}
	return messages
}

func format(name string) rule { return valid(formats[name]) }

func user(c *checker, path string, v reflect.Value) {
	c.messages(path, strconv.FormatInt(v.Int(), 10), validation.IsValidUserID(v.Int()))
}

func port(c *checker, path string, v reflect.Value) {
	p, named := reflect.TypeAssert[intstr.IntOrString](v)
	switch {
	case !named:
		c.messages(path, strconv.FormatInt(v.Int(), 10), validation.IsValidPortNum(int(v.Int())))
	case p.Type == intstr.String && p.StrVal != "" && strings.Trim(p.StrVal, "0123456789") == "":
		if !c.placeholder(path) {
			c.report(path, strict.QuotesHint, quoted(p.StrVal)+" is a name, and the name of a port has a letter")
		}
	case p.Type == intstr.String:
		c.messages(path, p.StrVal, validation.IsValidPortName(p.StrVal))
	default:
		c.messages(path, p.String(), validation.IsValidPortNum(p.IntValue()))
	}
}

// share checks a number that is not negative, or a percentage. One of more than 100 % is none of those that fit.
func share(fits bool) rule {
	return func(c *checker, path string, v reflect.Value) {
		n, _ := reflect.TypeAssert[intstr.IntOrString](v)
		percent, err := strconv.Atoi(strings.TrimSuffix(n.StrVal, "%"))
		switch {
		case n.Type == intstr.Int && n.IntVal < 0:
			c.invalid(path, `"%d" is too low: must be 0 or more`, n.IntVal)
		case n.Type == intstr.String && len(validation.IsValidPercent(n.StrVal)) > 0:
			c.invalid(path, "%s is invalid: must be a number, or a percentage such as 25%%", quoted(n.StrVal))
		case n.Type == intstr.String && fits && (err != nil || percent > 100):
			c.invalid(path, "%s is too high: must be 100%% or less", quoted(n.StrVal))
		}
	}
}

func address(c *checker, path string, v reflect.Value) {
	if len(validation.IsValidIPForLegacyField(nil, v.String(), false, nil)) > 0 {
		c.invalid(path, "%s is not an IP address", quoted(v.String()))
	}
}

func cidr(c *checker, path string, v reflect.Value) {
	if len(validation.IsValidCIDRForLegacyField(nil, v.String(), false, nil)) > 0 {
		c.invalid(path, "%s is not a range of IP addresses such as 10.0.0.0/8", quoted(v.String()))
	}
}

// host checks a DNS name that may begin with a wildcard, and is no IP address.
func host(c *checker, path string, v reflect.Value) {
	name := v.String()
	switch {
	case len(validation.IsValidIPForLegacyField(nil, name, false, nil)) == 0:
		c.invalid(path, "%s is an IP address: must be a DNS name", quoted(name))
	case strings.Contains(name, "*"):
		c.messages(path, name, validation.IsWildcardDNS1123Subdomain(name))
	default:
		c.messages(path, name, validation.IsDNS1123Subdomain(name))
	}
}

// searchDomain checks a domain of a DNS search list, a part of which may begin with an underscore.
func searchDomain(c *checker, path string, v reflect.Value) {
	name := strings.ReplaceAll(strings.TrimSuffix(v.String(), "."), "_", "a")
	if v.String() != "." && len(validation.IsDNS1123Subdomain(name)) > 0 {
		c.invalid(path, "%s is not a DNS domain", quoted(v.String()))
	}
}

// csiDriver checks the name of a driver, whose letters may be of either case.
func csiDriver(c *checker, path string, v reflect.Value) {
	if name := v.String(); len(name) > validation.DNS1123LabelMaxLength {
		c.invalid(path, "%s is too long: at most %d characters are allowed", quoted(name), validation.DNS1123LabelMaxLength)
	} else {
		c.messages(path, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
	}
}

// signer checks the name of a signer such as example.com/my-signer.
func signer(c *checker, path string, v reflect.Value) {
	domain, rest, found := strings.Cut(v.String(), "/")
	if !found || len(validation.IsDNS1123Subdomain(domain)) > 0 || len(validation.IsDNS1123Subdomain(rest)) > 0 || !strings.Contains(domain, ".") {
		c.invalid(path, "%s is not the name of a signer such as example.com/name", quoted(v.String()))
	}
}

// schedule checks the five fields of a CronJob's schedule.
func schedule(c *checker, path string, v reflect.Value) {
	text := v.String()
	if strings.Contains(text, "TZ") {
		c.invalid(path, "%s names a time zone: write it into timeZone", quoted(text))
	} else if _, err := cron.ParseStandard(text); err != nil {
		c.invalid(path, "%s is not a schedule: %v", quoted(text), err)
	}
}

var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

// timeZone checks the name of a time zone. One that this machine does not know is unknown to the API server too if this machine knows any.
func timeZone(c *checker, path string, v reflect.Value) {
	name := v.String()
	isPart := func(part string) bool { return part != "." && part != ".." && zonePart.MatchString(part) }
	_, err := time.LoadLocation(name)
	_, without := time.LoadLocation("Europe/London")
	if parts := strings.Split(name, "/"); slices.ContainsFunc(parts, func(p string) bool { return !isPart(p) }) || strings.EqualFold(name, "Local") || err != nil && without == nil {
		c.invalid(path, "%s is not a time zone such as Europe/London", quoted(name))
	}
}

// relativePath checks a path that must not leave where it begins.
func relativePath(c *checker, path string, v reflect.Value) {
	if strings.HasPrefix(v.String(), "/") {
		c.invalid(path, "%s must be a relative path", quoted(v.String()))
	}
	noParentReferences(c, path, v)
}

// fileInVolume checks the path of a file in a volume, whose name does not begin with two dots either.
func fileInVolume(c *checker, path string, v reflect.Value) {
	relativePath(c, path, v)
	if strings.HasPrefix(v.String(), "..") && !hasParentReference(v.String()) {
		c.invalid(path, `%s must not begin with ".."`, quoted(v.String()))
	}
}

func noParentReferences(c *checker, path string, v reflect.Value) {
	if hasParentReference(v.String()) {
		c.invalid(path, `%s must not contain ".."`, quoted(v.String()))
	}
}

// subPath checks a path in a volume, also one in which a placeholder is not known yet.
func subPath(c *checker, path string, v reflect.Value) {
	if strings.HasPrefix(v.String(), "/") || hasParentReference(v.String()) {
		c.error(path, `%s must be a relative path without ".."`, quoted(v.String()))
	}
}

func hasParentReference(path string) bool { return strings.Contains("/"+path+"/", "/../") }

func mode(c *checker, path string, v reflect.Value) {
	const most = 0o777
	if v.Int() < 0 || v.Int() > most {
		c.invalid(path, `"%d" is out of range: must be 0 to 511, which is 0777 in octal`, v.Int())
	}
}

func notNegative(c *checker, path string, v reflect.Value) {
	if q, ok := reflect.TypeAssert[resource.Quantity](v); ok && q.Sign() < 0 {
		c.invalid(path, "%q is negative", q.String())
	}
}

func quantities(c *checker, path string, v reflect.Value) {
	for _, k := range slices.SortedFunc(slices.Values(v.MapKeys()), keyOrder) {
		notNegative(c, strict.Member(path, k.String()), v.MapIndex(k))
	}
}

// selector checks a label selector.
func selector(c *checker, path string, s *metav1.LabelSelector) {
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		at := strict.Member(path+".matchLabels", key)
		for _, message := range content.IsLabelKey(key) {
			c.error(at, "the key is invalid: %s", message)
		}
		c.messages(at, s.MatchLabels[key], content.IsLabelValue(s.MatchLabels[key]))
	}
	for i := range s.MatchExpressions {
		for _, err := range metav1validation.ValidateLabelSelectorRequirement(s.MatchExpressions[i], metav1validation.LabelSelectorValidationOptions{}, field.NewPath(strict.Element(path+".matchExpressions", i))) {
			if body := err.ErrorBody(); !strings.HasSuffix(err.Field, ".operator") {
				c.invalid(err.Field, "%s", strings.ToLower(body[:1])+body[1:])
			}
		}
	}
}
