//! HTTP methods and paging shared by all calls.

use std::time::Duration;

use bursar_units::BookingId;
use http::{HeaderName, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::exchange::Call;
use super::query::escape;
use super::{Client, Error, Query};
use crate::api::{DryRun, IDEMPOTENCY_HEADER, ListAnswer, PAGE_MAX, Page, PageSize};

/// Real call or dry run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Real call.
    Do,
    /// Dry run: the same answer, without a change.
    DryRun,
}

impl Mode {
    /// A dry run if the argument is true.
    pub const fn dry_run_if(is_dry_run: bool) -> Self {
        if is_dry_run { Self::DryRun } else { Self::Do }
    }

    pub(super) fn query(self) -> Query {
        Query::of(&DryRun {
            dry_run: (self == Self::DryRun).then_some(true),
        })
    }
}

impl Client {
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<T, Error> {
        self.fetch(&call(Method::GET, path, query)).await
    }

    /// A GET that the server answers when the object changes, or after `wait`.
    pub(super) async fn get_waiting<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
        wait: Duration,
    ) -> Result<T, Error> {
        self.fetch(&call(Method::GET, path, query).wait(wait)).await
    }

    pub(super) async fn put<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
        body: &B,
    ) -> Result<T, Error> {
        self.fetch(&call(Method::PUT, path, query).json(body)).await
    }

    pub(super) async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
        body: &B,
    ) -> Result<T, Error> {
        self.fetch(&call(Method::POST, path, query).json(body))
            .await
    }

    pub(super) async fn post_once<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        key: &BookingId,
        query: &Query,
        body: &B,
    ) -> Result<T, Error> {
        let header = HeaderName::from_static(IDEMPOTENCY_HEADER);
        let call = call(Method::POST, path, query).json(body);
        self.fetch(&call.header(header, key.as_str())).await
    }

    pub(super) async fn delete<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<T, Error> {
        self.fetch(&call(Method::DELETE, path, query)).await
    }

    pub(super) async fn text(&self, path: &str) -> Result<String, Error> {
        let bytes = self
            .fetch_bytes(&Call::new(Method::GET, path.to_owned()))
            .await?;
        String::from_utf8(bytes.into()).map_err(|_| self.protocol(format!("{path} is not text")))
    }

    /// All pages of a list, as of the record of the first.
    pub(super) async fn all<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<ListAnswer<T>, Error> {
        let get = async |cursor| -> Result<ListAnswer<T>, Error> {
            let limit = Some(PageSize(PAGE_MAX));
            let page = Page { limit, cursor };
            self.get(path, &query.clone().and(&page)).await
        };
        let mut list = get(None).await?;
        while let Some(cursor) = list.next_cursor.take() {
            let page = get(Some(cursor)).await?;
            list.items.extend(page.items);
            list.next_cursor = page.next_cursor;
        }
        Ok(list)
    }
}

pub(super) fn call(method: Method, path: &str, query: &Query) -> Call {
    Call::new(method, format!("{path}{}", query.as_str()))
}

/// Joins parts, which may have any characters, to a path.
pub(super) fn path(parts: &[&str]) -> String {
    let mut path = String::new();
    for part in parts {
        path.push('/');
        escape(part, &mut path);
    }
    path
}
