package main

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

const group = "gardens.example.org"

var (
	stored = schema.GroupVersion{Group: group, Version: "v1"}
	beta   = schema.GroupVersion{Group: group, Version: "v1beta1"}
)

// Garden is the version that is stored, and what the others are converted by.
type Garden struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GardenSpec   `json:"spec,omitempty"`
	Status            GardenStatus `json:"status,omitempty"`
}

type GardenSpec struct {
	Plant string `json:"plant,omitempty"`
	Rows  *int32 `json:"rows,omitempty"`
}

type GardenStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	ConfigMap          string             `json:"configMap,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

type GardenList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Garden `json:"items"`
}

// BetaGarden is an older version: it wrote the number of rows as text.
type BetaGarden struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              BetaGardenSpec `json:"spec,omitempty"`
	Status            GardenStatus   `json:"status,omitempty"`
}

type BetaGardenSpec struct {
	Plant    string `json:"plant,omitempty"`
	RowCount string `json:"rowCount,omitempty"`
}

type BetaGardenList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BetaGarden `json:"items"`
}

func addToScheme(scheme *runtime.Scheme) {
	for version, types := range map[schema.GroupVersion][2]runtime.Object{
		stored: {&Garden{}, &GardenList{}},
		beta:   {&BetaGarden{}, &BetaGardenList{}},
	} {
		scheme.AddKnownTypeWithName(version.WithKind("Garden"), types[0])
		scheme.AddKnownTypeWithName(version.WithKind("GardenList"), types[1])
		metav1.AddToGroupVersion(scheme, version)
	}
}

func (*Garden) Hub() {}

func (g *BetaGarden) ConvertTo(to conversion.Hub) error {
	hub := to.(*Garden)
	hub.ObjectMeta, hub.Status, hub.Spec.Plant = g.ObjectMeta, g.Status, g.Spec.Plant
	if g.Spec.RowCount == "" {
		return nil
	}
	rows, err := strconv.ParseInt(g.Spec.RowCount, 10, 32)
	if err != nil {
		return fmt.Errorf("rowCount %q is not a number", g.Spec.RowCount)
	}
	hub.Spec.Rows = new(int32)
	*hub.Spec.Rows = int32(rows)
	return nil
}

func (g *BetaGarden) ConvertFrom(from conversion.Hub) error {
	hub := from.(*Garden)
	g.ObjectMeta, g.Status, g.Spec.Plant = hub.ObjectMeta, hub.Status, hub.Spec.Plant
	if hub.Spec.Rows != nil {
		g.Spec.RowCount = strconv.Itoa(int(*hub.Spec.Rows))
	}
	return nil
}

func (s GardenStatus) copied() GardenStatus {
	conditions := s.Conditions
	s.Conditions = nil
	for _, c := range conditions {
		s.Conditions = append(s.Conditions, *c.DeepCopy())
	}
	return s
}

func (g *Garden) DeepCopyObject() runtime.Object {
	c := *g
	g.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	if g.Spec.Rows != nil {
		rows := *g.Spec.Rows
		c.Spec.Rows = &rows
	}
	c.Status = g.Status.copied()
	return &c
}

func (g *BetaGarden) DeepCopyObject() runtime.Object {
	c := *g
	g.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Status = g.Status.copied()
	return &c
}

func (l *GardenList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Garden))
	}
	return &c
}

func (l *BetaGardenList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*BetaGarden))
	}
	return &c
}
