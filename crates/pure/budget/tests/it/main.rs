//! Tests of budgets.
