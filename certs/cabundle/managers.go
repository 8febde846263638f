package cabundle

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs/webhookconfig"
)

// FieldManager is the field manager of every Publisher.
const FieldManager = "gatehouse-ca-bundle"

// Manager is a field manager of an object, see managedFields.
type Manager struct {
	// Name is what the writer calls itself: "kubectl-client-side-apply", "helm".
	Name string
	// Operation is "Apply" or "Update".
	Operation string
	// Time is when it last wrote, zero if that was not recorded.
	Time time.Time
}

// managers returns those of an entry's caBundle, the latest first.
func (o *object) managers(entry string) []Manager {
	var list []Manager
	for _, f := range webhookconfig.Managers(o.fields, entry, "clientConfig", "caBundle") {
		m := Manager{Name: f.Manager, Operation: string(f.Operation)}
		if f.Time != nil {
			m.Time = f.Time.UTC()
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Manager) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Operation, b.Operation))
	})
	return list
}

// isApplied reports whether a Publisher manages the entry's caBundle: then the API server
// removes it if a patch lacks it.
func (o *object) isApplied(entry string) bool {
	return slices.ContainsFunc(o.managers(entry), func(m Manager) bool {
		return m.Name == FieldManager && m.Operation == string(metav1.ManagedFieldsOperationApply)
	})
}

// isPublished reports whether a Publisher, this one or another, wrote the entry's
// caBundle last: no other client manages it.
func (o *object) isPublished(entry string) bool {
	list := o.managers(entry)
	return len(list) > 0 && !slices.ContainsFunc(list, func(m Manager) bool { return m.Name != FieldManager })
}

// foreignManager returns the manager other than a Publisher that manages the entry's caBundle.
// It returns false if there is none: removing a field does not make the client a manager.
func (o *object) foreignManager(entry string) (Manager, bool) {
	list := slices.DeleteFunc(o.managers(entry), func(m Manager) bool { return m.Name == FieldManager })
	if len(list) == 0 {
		return Manager{}, false
	}
	return list[0], true
}
